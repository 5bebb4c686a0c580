"""Clients that people already have, in an environment of their own, against a real server."""
