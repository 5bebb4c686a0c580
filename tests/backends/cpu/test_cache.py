"""The compile cache under damage, faults at every system call, death, concurrency, and hostile
directories."""

from __future__ import annotations

import errno
import inspect
import io
import os
import random
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tetrad.backends.cpu import cache as cache_module
from tetrad.backends.cpu.cache import (
    HEADER_BYTES,
    ObjectCache,
    System,
    cache_key,
    default_directory,
)
from tetrad.core.errors import FlagError

KEY, OTHER = cache_key("kernel"), cache_key("other")
BODY = b"\x7fELF" + bytes(range(60))


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one warning per process becomes one per test; waiting for a real disk would take most of
    the time."""
    monkeypatch.setattr(cache_module, "NOTICE", cache_module._Notice())
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def entry(home: Path, key: str = KEY) -> Path:
    return home / f"{key}.obj"


def temporaries(home: Path) -> list[str]:
    return sorted(p.name for p in home.iterdir() if p.suffix == ".tmp")


# --- keys and entries -----------------------------------------------------------------------------


@given(st.lists(st.text()), st.lists(st.text()))
def test_keys_are_equal_only_for_equal_parts(a: list[str], b: list[str]) -> None:
    assert (cache_key(*a) == cache_key(*b)) == (a == b)


def test_the_boundary_between_parts_counts() -> None:
    assert cache_key("ab", "c") != cache_key("a", "bc") != cache_key("a", "bc", "")


@pytest.mark.parametrize("key", ["", "x", "../" + KEY[3:], KEY.upper(), KEY + "\n", KEY + "0"])
def test_only_keys_of_cache_key_name_files(home: Path, key: str) -> None:
    cache = ObjectCache(home)
    with pytest.raises(ValueError, match="cache_key"):
        cache.get(key)
    with pytest.raises(ValueError, match="cache_key"):
        cache.put(key, BODY)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(body=st.binary(max_size=300))
def test_what_is_put_is_got_by_any_cache_on_the_directory(home: Path, body: bytes) -> None:
    ObjectCache(home).put(KEY, body)
    assert ObjectCache(home).get(KEY) == body


def test_put_replaces(home: Path) -> None:
    cache = ObjectCache(home)
    cache.put(KEY, BODY)
    cache.put(KEY, b"newer")
    assert cache.get(KEY) == b"newer"
    assert cache.stats().entries == 1


def test_stats_count(home: Path) -> None:
    cache = ObjectCache(home)
    assert cache.get(KEY) is None
    cache.put(KEY, BODY)
    cache.get(KEY)
    got = cache.stats()
    assert (got.entries, got.bytes, got.hits, got.misses, got.damaged) == (
        1,
        HEADER_BYTES + len(BODY),
        1,
        1,
        0,
    )
    assert got.trouble == ""


def test_clear_deletes_our_files_and_nothing_else(home: Path) -> None:
    cache = ObjectCache(home)
    cache.put(KEY, BODY)
    (home / f"{KEY}.{'0' * 16}.tmp").write_bytes(b"")
    for name in ("letter.txt", "program.obj", f"{KEY}.obj.bak"):
        (home / name).write_bytes(b"mine")
    cache.clear()
    assert sorted(p.name for p in home.iterdir()) == [f"{KEY}.obj.bak", "letter.txt", "program.obj"]
    assert cache.stats().entries == 0


def test_without_a_directory_every_look_up_misses() -> None:
    cache = ObjectCache(None)
    cache.put(KEY, BODY)
    cache.clear()
    assert cache.get(KEY) is None
    assert cache.stats() == cache_module.Stats(0, 0, 0, 1, 0, "")


def test_a_relative_directory_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cache = ObjectCache(Path("here"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    cache.put(KEY, BODY)
    assert entry(tmp_path / "here").exists()


def test_importing_the_cache_loads_no_compiler() -> None:
    program = "import sys, tetrad.backends.cpu.cache; print('llvmlite' in sys.modules)"
    assert run_python(program).stdout.strip() == "False"


def run_python(program: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(program, *args), capture_output=True, text=True, check=True)


def command(program: str, *args: object) -> list[str]:
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}",
        *map(str, args),
    ]


ROOT = Path(__file__).resolve().parents[2]


# --- flags ----------------------------------------------------------------------------------------


def test_the_flag_names_the_directory(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_CACHE_DIR", str(home))
    ObjectCache.from_flags().put(KEY, BODY)
    assert ObjectCache(home).get(KEY) == BODY


def test_the_flag_turns_the_cache_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TETRAD_CACHE_DIR", "off")
    ObjectCache.from_flags().put(KEY, BODY)
    assert list(tmp_path.iterdir()) == []


def test_the_default_is_the_users_cache_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TETRAD_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ObjectCache.from_flags().put(KEY, BODY)
    assert entry(tmp_path / "tetrad").exists()


@pytest.mark.parametrize("xdg", ["", "relative"])
def test_the_default_without_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, xdg: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert default_directory() == str(tmp_path / ".cache" / "tetrad")


def test_no_home_means_uncached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TETRAD_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert ObjectCache.from_flags().get(KEY) is None
    assert "no home directory" in capsys.readouterr().err


def test_the_flag_is_read_from_the_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> str:
        raise FlagError(name)

    monkeypatch.setattr(cache_module, "flag", refuse)
    with pytest.raises(FlagError, match="TETRAD_CACHE_DIR"):
        ObjectCache.from_flags()


# --- damage ---------------------------------------------------------------------------------------


def assert_damaged_then_rewritten(home: Path) -> None:
    """The damaged entry is a miss, is gone, and the next put makes it good."""
    cache = ObjectCache(home)
    assert cache.get(KEY) is None
    assert not os.path.lexists(entry(home))
    assert cache.stats().damaged == 1
    cache.put(KEY, BODY)
    assert cache.get(KEY) == BODY


@pytest.fixture
def good(home: Path) -> bytes:
    ObjectCache(home).put(KEY, BODY)
    return entry(home).read_bytes()


def test_a_flip_of_any_bit_of_any_byte_is_found(home: Path, good: bytes) -> None:
    cache = ObjectCache(home)
    for at in range(len(good)):
        for bit in range(8):
            entry(home).write_bytes(good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :])
            assert cache.get(KEY) is None, (at, bit)
            assert not entry(home).exists()
    assert cache.stats().damaged == 8 * len(good)


def test_truncation_at_any_length_is_found(home: Path, good: bytes) -> None:
    cache = ObjectCache(home)
    for length in range(len(good)):
        entry(home).write_bytes(good[:length])
        assert cache.get(KEY) is None, length
        assert not entry(home).exists()


@pytest.mark.parametrize("tail", [b"\0", b"x", BODY, b"\0" * 5000])
def test_appended_bytes_are_found(home: Path, good: bytes, tail: bytes) -> None:
    entry(home).write_bytes(good + tail)
    assert_damaged_then_rewritten(home)


def test_swapped_entries_are_found(home: Path, good: bytes) -> None:
    ObjectCache(home).put(OTHER, BODY)
    os.rename(entry(home, OTHER), entry(home))
    assert_damaged_then_rewritten(home)


@pytest.mark.parametrize(("name", "value"), [("MAGIC", b"TETRADXX"), ("FORMAT", 0), ("FORMAT", 2)])
def test_another_format_is_a_miss(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """Whole and with a right checksum, but not what this version writes."""
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, name, value)
        ObjectCache(home).put(KEY, BODY)
        assert ObjectCache(home).get(KEY) == BODY
    assert_damaged_then_rewritten(home)


def test_a_huge_entry_is_refused_unread(home: Path, good: bytes) -> None:
    os.truncate(entry(home), 1 << 40)
    assert_damaged_then_rewritten(home)


def plant_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")  # leads to bytes that would verify


def plant_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("plant", [plant_link, plant_fifo])
def test_only_regular_files_are_entries(
    home: Path, good: bytes, plant: Callable[[Path], None]
) -> None:
    plant(entry(home))
    assert_damaged_then_rewritten(home)


def test_a_directory_in_place_of_an_entry_is_a_miss(home: Path) -> None:
    entry(home).mkdir(parents=True)
    home.chmod(0o700)
    cache = ObjectCache(home)
    assert cache.get(KEY) is None
    cache.put(KEY, BODY)
    assert cache.get(KEY) is None


def test_random_damage_never_gets_through(home: Path, good: bytes) -> None:
    rng = random.Random(0)
    cache = ObjectCache(home)
    for _ in range(500):
        mutant = mutate(rng, good)
        entry(home).write_bytes(mutant)
        assert (cache.get(KEY) is None) == (mutant != good)


def mutate(rng: random.Random, good: bytes) -> bytes:
    """Cuts, copies or overwrites a random stretch; sometimes nothing changes."""
    a, b = sorted(rng.choices(range(len(good) + 1), k=2))
    return rng.choice(
        [good[:a] + good[b:], good[:b] + good[a:], good[:a] + rng.randbytes(b - a) + good[b:]]
    )


# --- faults at every system call ------------------------------------------------------------------


class Death(BaseException):
    """The process is gone: nothing after it is executed, not even clean-up."""


class FaultyOS:
    """The `os` module, except that call number `at` goes wrong as `fault` says. `calls` is the
    history."""

    def __init__(self, at: int = -1, fault: str = "") -> None:
        self.at, self.fault = at, fault
        self.calls: list[str] = []
        self.dead = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._call(name, *args, **kwargs)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise Death
        self.calls.append(name)
        real = getattr(os, name)
        if len(self.calls) - 1 != self.at:
            return real(*args, **kwargs)
        return self._go_wrong(name, real, *args, **kwargs)

    def _go_wrong(self, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.fault == "short" and name in ("read", "write"):
            return shortened(name, real, *args)
        if self.fault == "short":
            return real(*args, **kwargs)
        if self.fault == "die half-way" and name == "write":
            shortened(name, real, *args)
        # Linux gives the descriptor back even when close fails
        if self.fault == "die after" or name == "close":
            real(*args, **kwargs)
        if self.fault.startswith("die"):
            self.dead = True
            raise Death
        code = getattr(errno, self.fault)
        raise OSError(code, os.strerror(code))


def shortened(name: str, real: Callable[..., Any], descriptor: int, what: Any) -> Any:
    return real(descriptor, what[: len(what) // 2 or 1] if name == "write" else max(what // 2, 1))


ERRORS = ["EIO", "ENOSPC", "EINTR", "EACCES", "EROFS", "EMFILE", "ENOENT"]
FAULTS = [*ERRORS, "short", "die before", "die after", "die half-way"]


def empty(home: Path) -> None:
    pass


def filled(home: Path) -> None:
    ObjectCache(home).put(KEY, BODY)


def damaged(home: Path) -> None:
    filled(home)
    entry(home).write_bytes(entry(home).read_bytes()[:-1])


def crowded(home: Path) -> None:
    """Three old entries, so that a fourth is over the limit of 1,000 bytes, and what a dead writer
    left."""
    for i in range(4):
        ObjectCache(home).put(cache_key(str(i)), bytes(100))
    orphan = home / f"{KEY}.{'0' * 16}.tmp"
    orphan.write_bytes(b"half")
    os.utime(orphan, (0, 0))


def get(cache: ObjectCache) -> None:
    assert cache.get(KEY) in (None, BODY)


def put(cache: ObjectCache) -> None:
    cache.put(KEY, BODY)


def get_then_put(cache: ObjectCache) -> None:
    get(cache)
    put(cache)
    get(cache)


def stats(cache: ObjectCache) -> None:
    cache.stats()


SCENES = [
    (empty, put),
    (empty, get),
    (filled, put),
    (filled, get),
    (damaged, get_then_put),
    (crowded, put),
    (crowded, stats),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("before", "action"), SCENES, ids=lambda f: f.__name__)
def test_a_fault_at_any_call_leaves_a_good_cache(
    tmp_path: Path,
    before: Callable[[Path], None],
    action: Callable[[ObjectCache], None],
    fault: str,
) -> None:
    at = 0
    while at < call_count(tmp_path, before, action, at, fault):
        at += 1
    assert at >= 4  # the loop really went through the calls


def call_count(
    tmp_path: Path,
    before: Callable[[Path], None],
    action: Callable[[ObjectCache], None],
    at: int,
    fault: str,
) -> int:
    """Plays the scene with a fault at one call, checks what it left behind, and tells how many
    calls there were."""
    home, descriptors = tmp_path / str(at), open_descriptors()
    before(home)
    system = FaultyOS(at, fault)
    died = False
    try:
        action(ObjectCache(home, 1000, system))
    except Death:
        died = True
    left = open_descriptors() - descriptors
    assert died or not left, "a descriptor leaked"
    for descriptor in left:
        os.close(descriptor)
    assert_good(
        home,
        at_most_temporaries=1 if died or "unlink" in system.calls else 0,
        already=before is crowded,
    )
    return len(system.calls)


def open_descriptors() -> set[int]:
    """Which descriptors are open, without the one that the listing needed."""
    return {d for d in map(int, os.listdir("/dev/fd")) if is_open(d)}


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def assert_good(home: Path, *, at_most_temporaries: int, already: bool) -> None:
    """What the next start sees: the right bytes or none, and everything works."""
    if home.exists():
        assert len(temporaries(home)) <= at_most_temporaries + already
    cache = ObjectCache(home, 1000)
    assert cache.get(KEY) in (None, BODY)
    assert cache.stats().damaged == 0 or not entry(home).exists()
    cache.put(KEY, BODY)
    assert ObjectCache(home).get(KEY) == BODY
    assert cache.stats().bytes <= 1000


def test_data_reach_the_disk_before_the_name_does(home: Path) -> None:
    system = FaultyOS()
    ObjectCache(home, system=as_system(system)).put(KEY, BODY)
    names = [name for name in system.calls if name in ("write", "fsync", "rename")]
    assert names == ["write", "write", "fsync", "rename"]


def as_system(system: Any) -> System:
    return system  # type: ignore[no-any-return]


@pytest.mark.parametrize("fault", ["EIO", "ENOSPC", "EROFS"])
def test_after_a_failed_write_old_entries_are_still_read(
    home: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    filled(home)
    system = FaultyOS()
    cache = ObjectCache(home, system=as_system(system))
    cache.put(OTHER, BODY)  # scans the directory
    # open and fstat of the directory, open, write
    system.at, system.fault = len(system.calls) + 3, fault
    cache.put(OTHER, b"lost")
    assert cache.get(OTHER) == BODY
    for _ in range(3):
        cache.put(OTHER, b"not even tried")
        assert cache.get(KEY) == BODY
    assert cache.get(OTHER) == BODY
    assert capsys.readouterr().err.count("compiled code is not cached") == 1
    assert os.strerror(getattr(errno, fault)) in cache.stats().trouble


def test_after_the_directory_failed_it_is_left_alone(home: Path) -> None:
    filled(home)
    system = FaultyOS(at=0, fault="EIO")
    cache = ObjectCache(home, system=as_system(system))
    for _ in range(3):
        assert cache.get(KEY) is None
        cache.put(KEY, BODY)
    assert system.calls == ["open"]


class TricklingOS(FaultyOS):
    """Reads and writes move one byte at a time, as the standard allows."""

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name in ("read", "write"):
            return getattr(os, name)(args[0], args[1][:1] if name == "write" else min(args[1], 1))
        return super()._call(name, *args, **kwargs)


def test_short_reads_and_writes_are_continued(home: Path) -> None:
    cache = ObjectCache(home, system=as_system(TricklingOS()))
    cache.put(KEY, BODY)
    assert ObjectCache(home).get(KEY) == cache.get(KEY) == BODY


def test_a_full_disk_is_found_by_the_real_system(tmp_path: Path) -> None:
    """The kernel refuses to write past the limit on file sizes, in a process of its own."""
    program = """
import resource, signal
from pathlib import Path
from tetrad.backends.cpu.cache import ObjectCache, cache_key
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
cache = ObjectCache(Path(sys.argv[1]))
cache.put(cache_key("small"), bytes(1_000))
for i in range(3):
    cache.put(cache_key(str(i)), bytes(100_000))
print([cache.get(cache_key(name)) is not None for name in ("small", "0", "1", "2")])
"""
    done = run_python(program, tmp_path / "cache")
    assert done.stdout.strip() == "[True, False, False, False]"
    assert done.stderr.count("\n") == 1
    assert "not cached" in done.stderr
    assert temporaries(tmp_path / "cache") == []


# --- death and company ----------------------------------------------------------------------------

# Both programs fork, so that the time goes into races and not into starting interpreters.
KILLED_WRITERS = """
import os, random, signal, time
from pathlib import Path
from tetrad.backends.cpu.cache import ObjectCache, cache_key

home, keys = Path(sys.argv[1]), 10
bodies = [random.Random(i).randbytes(50_000 + i) for i in range(keys)]

def write_for_ever():
    cache = ObjectCache(home)
    while True:
        i = random.randrange(keys)
        cache.put(cache_key(str(i)), bodies[i])

for kill in range(20):
    writer = os.fork()
    if writer == 0:
        write_for_ever()
    time.sleep(0.005 + random.random() * 0.03)
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    cache = ObjectCache(home)
    for i in range(keys):
        if cache.get(cache_key(str(i))) not in (None, bodies[i]):
            sys.exit("wrong bytes")
    if cache.stats().damaged:
        sys.exit(str(cache.stats()))
print(cache.stats().entries)
"""


def test_killing_writers_leaves_no_bad_entry(home: Path) -> None:
    done = run_python(KILLED_WRITERS, home)
    assert int(done.stdout) > 0, "no writer lived long enough to write anything"
    assert len(temporaries(home)) <= 20
    assert left_after_an_hour(home) == []


def left_after_an_hour(home: Path) -> list[str]:
    for name in temporaries(home):
        os.utime(home / name, (time.time() - 3700,) * 2)
    ObjectCache(home).put(KEY, BODY)
    return temporaries(home)


def work_beside_others(home: Path, seed: int) -> None:
    """Looks up 20 keys in random order, puts what is missing; worker 0 clears everything now and
    then."""
    cache = ObjectCache(home, limit_bytes=120_000)
    for i in random.Random(seed).choices(range(20), k=150):
        body = cache.get(cache_key(str(i)))
        if body is None:
            cache.put(cache_key(str(i)), bytes([i]) * (5_000 + i))
        elif body != bytes([i]) * (5_000 + i):
            raise ValueError(f"key {i}: wrong bytes")
        if seed == 0 and i == 0:
            cache.clear()
    got = cache.stats()
    if got.damaged or got.trouble:
        raise ValueError(str(got))


COMPANY = f"""
import os, random
from pathlib import Path
from tetrad.backends.cpu.cache import ObjectCache, cache_key

{inspect.getsource(work_beside_others)}

def worker(seed):
    pid = os.fork()
    if pid == 0:
        work_beside_others(Path(sys.argv[1]), seed)
        os._exit(0)
    return pid

print([os.waitpid(pid, 0)[1] for pid in [worker(seed) for seed in range(8)]])
"""


def test_eight_processes_and_a_cleaner_share_a_directory(home: Path) -> None:
    """The limit is 20 entries of about 5 kB and a little more: all of them delete each other's
    entries too."""
    done = run_python(COMPANY, home)
    assert (done.stdout.strip(), done.stderr) == (str([0] * 8), "")
    assert temporaries(home) == []
    # each of the eight looks again after an eighth
    assert ObjectCache(home).stats().bytes <= 2 * 120_000


def test_four_threads_share_a_directory(home: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work_beside_others, [home] * 4, range(4)))


def test_threads_share_one_cache(home: Path) -> None:
    cache = ObjectCache(home, limit_bytes=100_000)

    def work(seed: int) -> bool:
        numbers = random.Random(seed).choices(range(20), k=100)
        for i in numbers:
            cache.put(cache_key(str(i)), bytes([i]) * 10_000)
        return all(cache.get(cache_key(str(i))) in (None, bytes([i]) * 10_000) for i in numbers)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [True] * 4
    assert cache.stats().trouble == ""


def test_a_directory_that_vanishes_is_made_again(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = ObjectCache(home)
    for _ in range(3):
        cache.put(KEY, BODY)
        assert cache.get(KEY) == BODY
        entry(home).unlink()
        home.rmdir()
        assert cache.get(KEY) is None
    assert capsys.readouterr().err == ""


# --- the directory --------------------------------------------------------------------------------


def assert_refused(
    home: Path, capsys: pytest.CaptureFixture[str], reason: str, system: System = os
) -> None:
    """Nothing read, nothing written, one line said."""
    before = sorted(os.listdir(home))
    for cache in (ObjectCache(home, system=system), ObjectCache(home, system=system)):
        assert cache.get(KEY) is None
        cache.put(KEY, b"new")
        cache.put(OTHER, b"new")
        assert reason in cache.stats().trouble
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert reason in err and str(home) in err
    assert sorted(os.listdir(home)) == before


def test_the_directory_is_private_from_the_start(home: Path) -> None:
    mask = os.umask(0)
    try:
        ObjectCache(home / "deep").put(KEY, BODY)
    finally:
        os.umask(mask)
    assert (home / "deep").stat().st_mode & 0o777 == 0o700
    assert entry(home / "deep").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777])
def test_a_directory_others_can_write_is_refused(
    home: Path, good: bytes, capsys: pytest.CaptureFixture[str], mode: int
) -> None:
    home.chmod(mode)
    assert_refused(home, capsys, "can be written by other users")


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750])
def test_a_directory_others_can_only_read_is_used(home: Path, good: bytes, mode: int) -> None:
    home.chmod(mode)
    assert ObjectCache(home).get(KEY) == BODY


def test_a_symlinked_directory_is_refused(
    tmp_path: Path, good: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "cache")
    assert_refused(link, capsys, os.strerror(errno.ENOTDIR))


def test_a_foreign_directory_is_refused(
    home: Path, good: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)
    assert_refused(home, capsys, "belongs to another user")


class ForeignEntryOS(FaultyOS):
    """Files, and only they, belong to another user."""

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        found = super()._call(name, *args, **kwargs)
        if name != "fstat" or not stat.S_ISREG(found.st_mode):
            return found
        fields = list(found)
        fields[stat.ST_UID] += 1
        return os.stat_result(fields)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o622])
def test_an_entry_others_can_write_is_not_loaded(home: Path, good: bytes, mode: int) -> None:
    entry(home).chmod(mode)
    cache = ObjectCache(home)
    assert cache.get(KEY) is None and cache.stats().damaged == 1
    assert not entry(home).exists()
    cache.put(KEY, BODY)
    assert cache.get(KEY) == BODY


def test_an_entry_of_another_user_is_not_loaded(home: Path, good: bytes) -> None:
    cache = ObjectCache(home, system=as_system(ForeignEntryOS()))
    assert cache.get(KEY) is None and cache.stats().damaged == 1
    assert not entry(home).exists()


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o644])
def test_an_entry_others_can_only_read_is_loaded(home: Path, good: bytes, mode: int) -> None:
    entry(home).chmod(mode)
    assert ObjectCache(home).get(KEY) == BODY


class ReadOnlyOS(FaultyOS):
    """A disk mounted read-only; permissions alone would not stop a test that runs as root."""

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        writing = name == "open" and args[1] & os.O_CREAT
        if writing or name in ("makedirs", "unlink", "rename", "utime"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return super()._call(name, *args, **kwargs)


def test_a_warm_cache_on_a_read_only_disk_is_read(
    home: Path, good: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = ObjectCache(home, system=as_system(ReadOnlyOS()))
    assert cache.get(KEY) == BODY
    for _ in range(3):
        cache.put(OTHER, BODY)
        assert cache.get(OTHER) is None
        assert cache.get(KEY) == BODY
    assert capsys.readouterr().err.count("\n") == 1


def test_a_missing_directory_on_a_read_only_disk_means_uncached(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = ObjectCache(home, system=as_system(ReadOnlyOS()))
    for _ in range(3):
        assert cache.get(KEY) is None
        cache.put(KEY, BODY)
    assert not home.exists()
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_in_place_of_the_directory_means_uncached(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.write_bytes(b"a file")
    cache = ObjectCache(home)
    cache.put(KEY, BODY)
    assert cache.get(KEY) is None
    assert home.read_bytes() == b"a file"
    assert capsys.readouterr().err.count("\n") == 1


def test_clearing_a_refused_directory_is_an_error(home: Path, good: bytes) -> None:
    home.chmod(0o777)
    with pytest.raises(PermissionError, match="other users"):
        ObjectCache(home).clear()


def test_trouble_without_a_usable_stderr_is_survived(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_bytes(b"a file")
    closed = io.StringIO()
    closed.close()
    for stderr in (None, closed):
        monkeypatch.setattr(cache_module, "NOTICE", cache_module._Notice())
        monkeypatch.setattr(sys, "stderr", stderr)
        assert ObjectCache(home).get(KEY) is None


# --- the limit ------------------------------------------------------------------------------------

SIZE = 1000  # of an entry, header included


def put_numbered(cache: ObjectCache, home: Path, i: int) -> None:
    """Puts an entry last used at second `i`; real clocks are too coarse to order quick writes."""
    cache.put(cache_key(str(i)), bytes(SIZE - HEADER_BYTES))
    os.utime(entry(home, cache_key(str(i))), (i, i))


def numbers(home: Path, count: int = 20) -> list[int]:
    return [i for i in range(count) if entry(home, cache_key(str(i))).exists()]


def test_the_least_recently_used_leave_first_down_to_three_quarters(home: Path) -> None:
    cache = ObjectCache(home, limit_bytes=8 * SIZE)
    for i in range(8):
        put_numbered(cache, home, i)
    assert numbers(home) == list(range(8))
    put_numbered(cache, home, 8)
    assert numbers(home) == [3, 4, 5, 6, 7, 8]


def test_a_hit_counts_as_use(home: Path) -> None:
    cache = ObjectCache(home, limit_bytes=8 * SIZE)
    for i in range(8):
        put_numbered(cache, home, i)
    assert cache.get(cache_key("0")) is not None
    put_numbered(cache, home, 8)
    assert numbers(home) == [0, 4, 5, 6, 7, 8]


def test_entries_of_other_processes_count(home: Path) -> None:
    ours, theirs = ObjectCache(home, limit_bytes=8 * SIZE), ObjectCache(home, limit_bytes=8 * SIZE)
    for i in range(20):
        put_numbered(ours if i % 2 else theirs, home, i)
        assert ours.stats().bytes <= 9 * SIZE


def test_an_entry_larger_than_the_cache_is_not_kept(home: Path) -> None:
    cache = ObjectCache(home, limit_bytes=SIZE)
    cache.put(OTHER, b"")
    cache.put(KEY, bytes(SIZE))
    assert (cache.get(KEY), cache.get(OTHER)) == (None, b"")


def test_orphans_leave_after_an_hour_and_nothing_foreign_ever(home: Path) -> None:
    home.mkdir(mode=0o700)
    old, young, from_the_future = (f"{KEY}.{c * 16}.tmp" for c in "abc")
    ages = {old: 3700, young: 60, from_the_future: -9999, "mine.tmp": 9999}
    for name, age in ages.items():
        (home / name).write_bytes(bytes(5000))
        os.utime(home / name, (time.time() - age,) * 2)
    ObjectCache(home, limit_bytes=2000).put(KEY, BODY)
    assert sorted(os.listdir(home)) == sorted([f"{KEY}.obj", young, "mine.tmp"])


def test_a_look_up_is_quicker_than_any_compilation(home: Path) -> None:
    cache = ObjectCache(home)
    cache.put(KEY, bytes(200_000))

    def seconds() -> float:
        start = time.process_time()
        cache.get(KEY)
        return time.process_time() - start

    assert min(seconds() for _ in range(20)) < 0.002  # 0.17 ms on an idle machine
