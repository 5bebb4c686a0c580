"""argmax and argmin."""
