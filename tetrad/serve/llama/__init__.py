"""Serve, llama.cpp: what its server has beside the API of OpenAI."""
