"""The files of deploy/: each is what it says, and every option in them is one of `tetrad serve`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from tests.modules import ROOT
from tetrad.cli.main import main

FOLDER = ROOT / "deploy"
PAGE = (ROOT / "docs/deploy.md").read_text()


def spellings() -> set[str]:
    """Options of `tetrad serve`."""
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    params = [p for p in command.params if isinstance(p, click.Option)]
    return {name for p in params for name in (*p.opts, *p.secondary_opts)}


def instructions() -> dict[str, list[str]]:
    """What stands behind each word of the Dockerfile."""
    text = re.sub(r"\\\n", " ", (FOLDER / "Dockerfile").read_text())
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            found.setdefault(word, []).append(rest.strip())
    return found


def unit() -> dict[str, list[str]]:
    lines = (FOLDER / "tetrad.service").read_text().splitlines()
    pairs = [line.partition("=") for line in lines if re.match(r"[A-Z]\w+=", line)]
    return {name: [v for n, _, v in pairs if n == name] for name, _, _ in pairs}


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))


def test_the_container_serves_as_nobody_and_wants_a_key() -> None:
    found = instructions()
    entry = json.loads(found["ENTRYPOINT"][0])
    assert found["USER"] == ["tetrad"] and found["VOLUME"] == ["/var/lib/tetrad"]
    assert found["FROM"][-1].endswith("-slim") and "HEALTHCHECK" in found
    script = entry[2].replace("exec tetrad", "echo tetrad")
    run = ["sh", "-c", script, *entry[3:], "some model", "-c", "8"]
    without = subprocess.run(run, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert without.returncode != 0 and "a key is needed" in without.stderr
    with_key = {"PATH": "/usr/bin:/bin", "TETRAD_API_KEY": "k"}
    done = subprocess.run(run, env=with_key, capture_output=True, text=True, check=True)
    words = shlex.split(done.stdout)
    assert words[:4] == ["tetrad", "serve", "--host", "0.0.0.0"] and words[-2:] == ["-c", "8"]
    assert options_in(done.stdout) <= spellings()


def test_the_health_check_is_a_program() -> None:
    command = json.loads(instructions()["HEALTHCHECK"][0].partition("CMD ")[2])
    compile(command[2], "healthcheck", "exec")


def test_the_container_is_made_of_what_is_there() -> None:
    kept = [
        line[1:]
        for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert [name for name in kept if not (ROOT / name).exists()] == [] and "tetrad" in kept


def test_the_unit_is_hardened_and_can_compile() -> None:
    found = unit()
    for name in ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "ProtectHome", "LockPersonality"):
        assert found[name] == ["yes"]
    assert found["ProtectSystem"] == ["strict"] and "MemoryDenyWriteExecute" not in found
    assert "MemoryDenyWriteExecute" in (FOLDER / "tetrad.service").read_text()  # says why
    command = found["ExecStart"][0]
    assert options_in(command) <= spellings()
    drain = int(command.partition("--drain-timeout ")[2].split()[0])
    assert int(found["TimeoutStopSec"][0]) > drain


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = (FOLDER / "tetrad.service").read_text().replace("/opt/tetrad/bin/tetrad", "/bin/true")
    path = tmp_path / "tetrad.service"
    path.write_text(text)
    run = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
    said = [line for line in run.stderr.splitlines() if "tetrad.service" in line]
    assert said == []


def test_compose_and_proxies_speak_of_the_same_server() -> None:
    compose = (FOLDER / "compose.yaml").read_text()
    command = json.loads(
        re.sub(r"\$\{[^}]*\}", "x", compose.partition("command: ")[2]).split("\n")[0]
    )
    assert options_in(" ".join(command)) <= spellings() and "TETRAD_API_KEY:?" in compose
    assert "flush_interval -1" in (FOLDER / "Caddyfile").read_text()
    assert "proxy_buffering off;" in (FOLDER / "nginx.conf").read_text()
    assert "option http-no-delay" in (FOLDER / "haproxy.cfg").read_text()
    for name in ("Caddyfile", "nginx.conf"):
        text = (FOLDER / name).read_text()
        assert text.count("{") == text.count("}")


def test_the_page_names_what_is_there() -> None:
    assert [p.name for p in FOLDER.iterdir() if p.stem not in PAGE] == []
    of_others = {"--cpus", "--cpunodebind"}
    named = {word for text in re.findall(r"`([^`]*)`", PAGE) for word in options_in(text)}
    assert {name for name in named if name.startswith("--")} - of_others <= spellings()
