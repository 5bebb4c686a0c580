"""python -m tests.replay --base REVISION: what the compiler makes of the replay's programs, there
and here, compared.

Each revision is captured by its own `tests/replay`, in a clean checkout for the base and in this
folder for what is here now. Prints a diff and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.replay.compare import PARTS, read, report

HERE = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.replay", description=__doc__)
    parser.add_argument(
        "--base", required=True, metavar="REVISION", help="compare with this revision"
    )
    parser.add_argument(
        "--only", choices=PARTS, help="compare only this part of what the compiler makes"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tetrad-replay-") as folder:
        there = Path(folder) / "base"
        git("worktree", "add", "--quiet", "--detach", str(there), options.base)
        try:
            if not (there / "tests" / "replay").is_dir():
                print(
                    f"{options.base} has no tests/replay: it is older than the replay",
                    file=sys.stderr,
                )
                return 2
            runs = [start(there, f"{folder}/before.gz"), start(HERE, f"{folder}/after.gz")]
            if any([run.wait() for run in runs]):
                print("a revision could not be captured, see above", file=sys.stderr)
                return 2
        finally:
            git("worktree", "remove", "--force", str(there))
        before, after = read(f"{folder}/before.gz"), read(f"{folder}/after.gz")
    parts = (options.only,) if options.only else PARTS
    text = report(before, after, parts)
    print(text or f"{len(after)} programs: {' and '.join(parts)} as at {options.base}")
    return 1 if text else 0


def start(folder: Path, path: str) -> subprocess.Popen[bytes]:
    """Capture the revision in a folder; it is imported from there, whatever is installed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TETRAD_")}
    environment |= {"PYTHONPATH": str(folder), "TETRAD_CACHE_DIR": "off"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.replay.capture", path], cwd=folder, env=environment
    )


def git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=HERE, check=True)


if __name__ == "__main__":
    sys.exit(main())
