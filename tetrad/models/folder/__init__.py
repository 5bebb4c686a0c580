"""Models, folders: a Hugging Face folder (config.json, safetensors, tokenizer.json) as the file of
a model.

Receives the path of a folder; returns what a GGUF file of the same model would hold, under the same
names: metadata, and tensors that lie where they are mapped. What is spelled how in the folder of an
architecture is said in the file of that architecture.
"""
