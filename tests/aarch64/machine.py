"""An AArch64 machine in a folder: `python -m tests.aarch64.machine` makes build/aarch64 and says
what it does.

`root` holds the system's own Debian packages for arm64, unpacked: Python and the libraries it
needs. `site` has wheels of this project's dependencies, in the versions that are installed here.
`python` starts that interpreter in qemu. No rights are needed: apt gets folders of its own for
lists and archives, and nothing is installed into the system. Mirrors and keys are those of the
system's configuration. What is complete is not made again.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
FOLDER = HERE / "build" / "aarch64"
ROOT, SITE, LAUNCHER, STAMP = (
    FOLDER / "root",
    FOLDER / "site",
    FOLDER / "python",
    FOLDER / "complete.json",
)
# what they need comes with them; wheels want the library of C++
PACKAGES = ("python3", "libstdc++6")
OLDEST = (3, 11)
# Of this project's dependencies; linters and JAX have nothing to do there.
WHEELS = (
    "numpy", "ml_dtypes", "llvmlite", "click", "rich", "tokenizers", "jinja2", "llguidance",
    "huggingface_hub",
    "prompt_toolkit", "pytest", "hypothesis", "pytest-timeout", "pytest-xdist", "scipy", "gguf",
)  # fmt: skip
LINE = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.*)"
)
# Subprocesses of tests start `sys.executable`, which must be qemu: the kernel here cannot start the
# interpreter itself.
CUSTOM = 'import os, sys\n\nsys.executable = os.environ["AARCH64_PYTHON"]\n'


class MachineError(Exception):
    """The machine cannot be made here; says what to do."""


@dataclass(frozen=True)
class Source:
    """Where the system gets packages of its own release."""

    uri: str
    suite: str
    components: str
    key: str = ""

    def __str__(self) -> str:
        fields = {
            "Types": "deb",
            "URIs": self.uri,
            "Suites": self.suite,
            "Components": self.components,
        }
        return "".join(
            f"{k}: {v}\n"
            for k, v in (fields | ({"Signed-By": self.key} if self.key else {})).items()
        )


def main() -> int:
    try:
        make_machine()
    except MachineError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def make_machine() -> Path:
    """The program that starts Python there; made if it is not complete."""
    wheels = [f"{name}=={version(name)}" for name in WHEELS]
    complete = json.dumps([qemu(), PACKAGES, wheels])
    if STAMP.exists() and STAMP.read_text() == complete:
        return LAUNCHER
    FOLDER.mkdir(parents=True, exist_ok=True)
    STAMP.unlink(missing_ok=True)
    unpack_packages()
    interpreter = find_interpreter()
    install_wheels(interpreter, wheels)
    write_launcher(interpreter)
    said = output(
        str(LAUNCHER),
        "-c",
        "import platform, llvmlite, numpy, sys; print(platform.machine(), sys.version)",
    )
    say(f"runs: {said.strip()}")
    STAMP.write_text(complete)
    return LAUNCHER


def qemu() -> str:
    for name in ("qemu-aarch64", "qemu-aarch64-static"):
        if found := shutil.which(name):
            return found
    raise MachineError("qemu-aarch64 is not installed\n  hint: apt-get install qemu-user")


# -- packages of the system's release --------------------------------------------------------------


def unpack_packages() -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise MachineError(
                f"{tool} is not here: the machine is made of Debian packages, on a Debian system"
            )
    sources = [
        source for source in system_sources() if source.suite.partition("-")[0] == codename()
    ]
    if not sources:
        raise MachineError(
            f"apt's sources name nothing of the release {codename()!r}: see /etc/apt/sources.list*"
        )
    apt = apt_command(sources)
    say(
        f"lists of packages for arm64: {', '.join(dict.fromkeys(source.uri for source in sources))}"
    )
    output(*apt, "update", "--quiet=2")
    say(f"packages: {', '.join(PACKAGES)} and what they need")
    options = ("--download-only", "--yes", "--quiet=2", "--no-install-recommends")
    output(*apt, "install", *options, *PACKAGES)
    archives = sorted((FOLDER / "apt" / "cache" / "archives").glob("*.deb"))
    shutil.rmtree(ROOT, ignore_errors=True)
    make_merged_root()
    for archive in archives:
        unpack(archive)
    say(f"{len(archives)} packages unpacked")


def unpack(archive: Path) -> None:
    """dpkg-deb would put a folder of the archive in the place of a link to one."""
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE
    ) as packed:
        words = ["tar", "--extract", "--keep-directory-symlink", "--directory", str(ROOT)]
        done = subprocess.run(words, stdin=packed.stdout)
    if packed.returncode or done.returncode:
        raise MachineError(
            f"{archive} could not be unpacked, see above; delete it to fetch it again"
        )


def make_merged_root() -> None:
    """/lib is /usr/lib, as on every Debian system of today; packages have files in either."""
    for name in ("bin", "lib", "sbin"):
        (ROOT / "usr" / name).mkdir(parents=True, exist_ok=True)
        (ROOT / name).symlink_to(f"usr/{name}")


def apt_command(sources: Sequence[Source]) -> tuple[str, ...]:
    """apt-get with folders of its own, for arm64, as a system on which nothing is installed."""
    home = FOLDER / "apt"
    for name in ("state/lists/partial", "cache/archives/partial", "etc"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "state" / "status").write_text("")
    (home / "etc" / "system.sources").write_text("\n".join(map(str, sources)))
    settings = {
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "APT::Sandbox::User": "",
        "Debug::NoLocking": "1",
        "Dir::State": home / "state", "Dir::State::status": home / "state" / "status",
        "Dir::Cache": home / "cache",
        "Dir::Etc::sourcelist": home / "etc" / "system.sources", "Dir::Etc::sourceparts": "-",
    }  # fmt: skip
    return (
        "apt-get",
        *(word for name, value in settings.items() for word in ("-o", f"{name}={value}")),
    )


def codename() -> str:
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "")


def system_sources() -> Iterator[Source]:
    """All that apt is configured with, from files of both kinds."""
    etc = Path("/etc/apt")
    for path in [etc / "sources.list", *sorted(etc.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else ():
            yield from sources_of_line(line)
    for path in sorted(etc.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            yield from sources_of_stanza(stanza)


def sources_of_line(line: str) -> Iterator[Source]:
    if found := LINE.fullmatch(line.partition("#")[0].strip()):
        options = dict(word.partition("=")[::2] for word in (found["options"] or "").split())
        yield Source(
            found["uri"], found["suite"], found["components"], options.get("signed-by", "")
        )


def sources_of_stanza(stanza: str) -> Iterator[Source]:
    lines = [line for line in stanza.splitlines() if not line.startswith("#")]
    pairs = [line.partition(":") for line in lines if not line.startswith(" ")]
    fields = {name: value.strip() for name, _, value in pairs}
    if "deb" not in fields.get("Types", "").split() or fields.get("Enabled") == "no":
        return
    for uri in fields["URIs"].split():
        for suite in fields["Suites"].split():
            yield Source(uri, suite, fields.get("Components", ""), fields.get("Signed-By", ""))


def find_interpreter() -> Path:
    found = [
        path
        for path in (ROOT / "usr" / "bin").iterdir()
        if re.fullmatch(r"python3\.\d+", path.name)
    ]
    if len(found) != 1 or release_of(found[0]) < OLDEST:
        names = ", ".join(path.name for path in found) or "no Python"
        raise MachineError(
            f"wanted is Python {OLDEST[0]}.{OLDEST[1]} or newer, the release {codename()} has "
            f"{names}"
        )
    return found[0]


def release_of(interpreter: Path) -> tuple[int, ...]:
    return tuple(map(int, interpreter.name.removeprefix("python").split(".")))


# -- wheels ----------------------------------------------------------------------------------------


def install_wheels(interpreter: Path, wanted: Sequence[str]) -> None:
    say(f"wheels for {interpreter.name}: {', '.join(wanted)}")
    major, minor = release_of(interpreter)
    shutil.rmtree(SITE, ignore_errors=True)
    tags = [
        "manylinux2014_aarch64",
        *(f"manylinux_2_{glibc}_aarch64" for glibc in range(17, glibc_of_root() + 1)),
    ]
    platforms = [word for tag in tags for word in ("--platform", tag)]
    kind = (
        "--implementation",
        "cp",
        "--python-version",
        f"{major}.{minor}",
        "--only-binary",
        ":all:",
    )
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(SITE))
    output(*pip, *platforms, *kind, *wanted)


def glibc_of_root() -> int:
    (library,) = ROOT.glob("usr/lib/aarch64-linux-gnu/libc.so.6")
    found = re.search(rb"GNU C Library .*? version 2\.(\d+)", library.read_bytes())
    if found is None:
        raise MachineError(f"{library} does not say its version")
    return int(found[1])


# -- running ---------------------------------------------------------------------------------------


def write_launcher(interpreter: Path) -> None:
    (SITE / "sitecustomize.py").write_text(CUSTOM)
    words = [qemu(), "-L", str(ROOT), str(interpreter)]
    setting = f"AARCH64_PYTHON={shlex.quote(str(LAUNCHER))} PYTHONDONTWRITEBYTECODE=1"
    path = f"PYTHONPATH={shlex.quote(f'{HERE}:{SITE}')}"
    LAUNCHER.write_text(f'#!/bin/sh\nexec env {setting} {path} {shlex.join(words)} "$@"\n')
    LAUNCHER.chmod(0o755)


def output(*words: str) -> str:
    """What a program says; all of it if it fails."""
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    if done.returncode:
        raise MachineError(
            f"{shlex.join(words)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


BEGUN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGUN:5.0f} s  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
