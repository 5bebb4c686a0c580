"""Command line, talking: from what was asked to what stands on the screen.

A partner (a model here, a server elsewhere) gives the parts of an answer; the display shows them.
Commands are in the folder above.
"""
