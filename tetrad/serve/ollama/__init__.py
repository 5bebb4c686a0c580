"""Serve, ollama: the API of ollama, a file a group of endpoints."""
