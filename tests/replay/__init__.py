"""Replay: what the compiler makes of a fixed set of programs, at two revisions, compared. Empty for
a refactor.

`programs` says which programs, `capture` writes what one revision makes of them, `canonical` takes
names and order out of it, `compare` tells where two revisions differ. `make replay BASE=<revision>`
does all of it.
"""
