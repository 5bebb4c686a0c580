"""One file per architecture, called like it in GGUF (`nomic-bert` is `nomic_bert.py`). Found by
name, loaded when asked for: a new one is a new file here, and nothing else."""
