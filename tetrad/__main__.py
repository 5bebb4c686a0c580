"""`python -m tetrad COMMAND` is `tetrad COMMAND`."""

from __future__ import annotations

from tetrad.cli.start import main

if __name__ == "__main__":
    main()
