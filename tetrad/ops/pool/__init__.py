"""Windows over an array: sums and extremes of them, and the way back."""
