"""Language models: one file per architecture, and what turns a model file into something that
generates."""
