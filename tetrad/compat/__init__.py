"""The names of other packages, over our own models: programs written for them run after changing
one import."""
