"""Running sums and products."""
