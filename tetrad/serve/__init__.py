"""Serve: a model behind HTTP. The APIs of OpenAI, Anthropic and ollama in; answers out, streamed.

Many requests share the batches of one model; each has the bytes it would have alone.
"""
