"""Text for language models: tokenisers out of GGUF metadata, chat templates, and text while it
streams."""
