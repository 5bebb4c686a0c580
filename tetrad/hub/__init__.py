"""The hub: where models are, how they get there, what they need.

Receives what a user calls a model (a name, a path, `org/repo:QUANT`, a URL); returns the path of a
GGUF file, or what is known about it from its metadata alone. Nothing here runs a model.
"""
