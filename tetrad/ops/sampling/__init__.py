"""Tokens chosen from logits."""
