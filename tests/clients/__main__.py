"""python -m tests.clients [URL]: scripted conversations of clients that people have, unchanged.

Starts `tetrad serve` with SmolLM2 on a free port, unless the address of a server is given, and runs
each client in the environment of `make test-clients`: build/clients, with the JavaScript package in
build/clients/js.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
PLACE = Path("build/clients").absolute()
PYTHON = PLACE / "bin" / "python"
PACKAGES = ("openai", "ollama", "langchain-openai", "litellm", "mcp")
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
SECONDS = 180


def prepare() -> None:
    """The clients' own packages, once."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
        pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
    if not (PLACE / "js" / "node_modules").exists():
        (PLACE / "js").mkdir()
        subprocess.run(["npm", "install", "--silent", "openai"], cwd=PLACE / "js", check=True)


@contextmanager
def server() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    words = ["serve", "smollm2", "--port", str(port), "-c", "2048", "-np", "4"]
    run = subprocess.Popen([sys.executable, "-m", "tetrad", *words])
    try:
        wait_for(base)
        yield base
    finally:
        run.terminate()
        run.wait(30)


def wait_for(base: str) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise TimeoutError(f"no server answers at {base}")


def scripts(base: str) -> Iterator[tuple[str, list[str | Path]]]:
    for path in sorted(HERE.glob("with_*.py")):
        yield path.stem, [PYTHON, path, base]
    # a package is looked for beside the script that imports it
    copy = PLACE / "js" / "with_openai.mjs"
    copy.write_text((HERE / "with_openai.mjs").read_text())
    yield "with_openai (JavaScript)", ["node", copy, base]


def converse(base: str) -> int:
    failed = 0
    for name, command in scripts(base):
        done = subprocess.run(command, env={**os.environ, **QUIET}, timeout=SECONDS)
        print(f"{name}: {'passed' if done.returncode == 0 else 'failed'}", flush=True)
        failed += done.returncode != 0
    return failed


def main(words: list[str]) -> int:
    prepare()
    if words:
        return converse(words[0])
    with server() as base:
        return converse(base)


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
