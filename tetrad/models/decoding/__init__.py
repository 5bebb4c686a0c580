"""Models, decoding: from logits to text. Settings, samplers, constraints, and one request on its
way."""
