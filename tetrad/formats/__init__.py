"""Formats: model files as named bytes with types, in and out; one package per format, no maths of
their own.

Files are hostile: whatever is read is checked before it is used, and a bad file gives one error
that names the place.
"""
