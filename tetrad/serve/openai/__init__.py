"""Serve, OpenAI: the API of OpenAI, a file an endpoint."""
