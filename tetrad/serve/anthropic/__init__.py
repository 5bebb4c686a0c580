"""Serve, Anthropic: the API of Anthropic's messages."""
