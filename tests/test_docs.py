"""The documentation is true: every Python block of every page runs, tables are those of the code,
links lead somewhere.

A page is one namespace, read from top to bottom. A block with `>>>` is a doctest, any other block
is a program. What a page adds to the registries of ops and formats or to the public namespace is
taken away afterwards.
"""

from __future__ import annotations

import doctest
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tetrad
from tests.models.folders import golden_folder
from tests.models.loaded import write_model
from tetrad.arrays import functions
from tetrad.core import errors
from tetrad.core.dtypes import DType, f32, f64
from tetrad.core.errors import TetradError
from tetrad.core.flags import FLAGS
from tetrad.core.op import REGISTRY
from tetrad.graph import verify as graph_verify
from tetrad.kernel.math.ulps import ULPS
from tetrad.kernel.verify import CODES
from tetrad.models.arch import ARCHITECTURES
from tetrad.quant.format import FORMATS
from tetrad.quant.lanes import DTYPES, LANES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MODEL_EXAMPLES = sorted((ROOT / "examples" / "models").glob("*.py"))
FOLDERS = sorted(p.parent.name for p in (ROOT / "tetrad").glob("*/__init__.py"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAME = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")
WORD = re.compile(r"[A-Za-z_]\w*")
FILE = re.compile(r"`([\w./]+\.py)`")
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
RULE = re.compile(r"\|(?: *:?-+:? *\|)+")
# of other libraries, or put together
ELSEWHERE = {"dgetrf_", "dgetrf_64_", "scipy_dgetrf_64_", "yarn_", "q4_kx16"}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# -- code on pages ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    page: Path
    line: int  # of its first line of code, counted from 1
    text: str

    @property
    def is_session(self) -> bool:
        return any(line.startswith(">>>") for line in self.text.splitlines())


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in FENCE.finditer(text):
        if match[1] == "python":
            yield Block(page, text.count("\n", 0, match.start(2)) + 1, match[2])


def run_session(block: Block, names: dict[str, Any]) -> None:
    place = name_of(block.page)
    session = doctest.DocTestParser().get_doctest(block.text, names, place, place, block.line - 1)
    session.globs = names  # the parser made a copy; later blocks go on with these
    report: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(session, out=report.append, clear_globs=False)
    assert not report, "".join(report)


def run_program(block: Block, names: dict[str, Any]) -> None:
    """Lines count as they do on the page, so that errors and graphs name them."""
    place = name_of(block.page)
    linecache.cache[place] = (0, None, block.page.read_text().splitlines(keepends=True), place)
    exec(compile("\n" * (block.line - 1) + block.text, place, "exec", dont_inherit=True), names)


@pytest.fixture
def own_formats() -> Iterator[None]:
    """Block formats that a page registers are gone afterwards, but for their types, which live as
    long as Python."""
    tables: list[dict[str, Any]] = [FORMATS, LANES, DTYPES]
    before = [dict(table) for table in tables]
    yield
    for table, known in zip(tables, before, strict=True):
        table.clear()
        table.update(known)


@pytest.fixture
def own_registry(own_formats: None) -> Iterator[None]:
    """Ops that a page defines, the public functions made of them, and architectures are gone
    afterwards."""
    ops, architectures = dict(REGISTRY), dict(ARCHITECTURES)
    yield
    ARCHITECTURES.clear()
    ARCHITECTURES.update(architectures)
    new = REGISTRY.keys() - ops
    REGISTRY.clear()
    REGISTRY.update(ops)
    for module in (tetrad, functions):
        for name in new & vars(module).keys():
            delattr(module, name)


@pytest.mark.parametrize("page", [p for p in PAGES if any(blocks(p))], ids=name_of)
def test_every_block_runs(
    page: Path, own_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")
    # where dataclasses look for what annotations mean
    monkeypatch.setitem(sys.modules, "page", module)
    for block in blocks(page):
        (run_session if block.is_session else run_program)(block, vars(module))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_is_marked_as_python(page: Path) -> None:
    """A block that shows Python says so: then it runs."""
    others = [m[2] for m in FENCE.finditer(page.read_text()) if m[1] != "python"]
    assert [text for text in others if ">>> " in text or "import " in text] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_examples_run(example: Path) -> None:
    run_example(example)


@pytest.mark.parametrize("example", MODEL_EXAMPLES, ids=name_of)
def test_examples_of_models_run(example: Path, tmp_path: Path) -> None:
    """With a model of a few weights, whose answers mean nothing."""
    if example.stem == "rerank":
        run_example(example, str(golden_folder(tmp_path / "ranks", "bert-rank")))
        return
    write_model(str(tmp_path / "tiny.gguf"), "llama", "q8_0", context=512)
    run_example(example, str(tmp_path / "tiny.gguf"))


def run_example(example: Path, *words: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(example), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_table_has_one_head(page: Path) -> None:
    """Else it is shown as text."""
    tables = [found[0].splitlines() for found in TABLE.finditer(page.read_text() + "\n")]
    rules = [[i for i, line in enumerate(table) if RULE.fullmatch(line)] for table in tables]
    assert [table[0] for table, at in zip(tables, rules, strict=True) if at != [1]] == []


# -- tables of the code ----------------------------------------------------------------------------


def table_rows(page: str, start: str) -> list[str]:
    return [
        line for line in (DOCS / f"{page}.md").read_text().splitlines() if line.startswith(start)
    ]


def test_flags_are_all_on_their_page() -> None:
    rows = [
        (
            f"| `{flag.name}` | {flag.values} | {flag.default or '-'} | "
            f"{'yes' if flag.changes_code else 'no'} |"
        )
        for flag in FLAGS.values()
    ]
    assert table_rows("flags", "| `TETRAD_") == rows


def test_ulps_are_those_of_the_kernels() -> None:
    def shown(name: str, dtype: DType) -> str:
        return str(ULPS[name].get(dtype, "-"))

    rows = [f"| `{name}` | {shown(name, f32)} | {shown(name, f64)} |" for name in sorted(ULPS)]
    shown_rows = table_rows("numerics", "| `")
    assert [row for row in rows if row not in shown_rows] == []


def test_errors_are_all_on_their_page() -> None:
    page = (DOCS / "errors.md").read_text()
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, TetradError)]
    assert [kind.__name__ for kind in kinds if f"`{kind.__name__}`" not in page] == []


def test_rules_of_both_languages_are_on_their_pages() -> None:
    graph_codes = set(re.findall(r"G\d{3}", graph_verify.__doc__ or ""))
    assert [
        code for code in sorted(graph_codes) if code not in (DOCS / "graph.md").read_text()
    ] == []
    assert [code for code in CODES if code not in (DOCS / "kernel.md").read_text()] == []


# -- the whole -------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [
        link.partition("#")[0] for link in LINK.findall(page.read_text()) if "://" not in link
    ]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name_of)
def test_links_of_the_site_stay_on_it(page: Path) -> None:
    """`make docs` has the pages of docs/ alone, and refuses to build with a link that leads out."""
    links = [link.partition("#")[0] for link in LINK.findall(page.read_text())]
    targets = [(page.parent / link).resolve() for link in links if link and "://" not in link]
    assert [str(target) for target in targets if not target.is_relative_to(DOCS)] == []


@pytest.fixture(scope="module")
def words_of_the_source() -> set[str]:
    files = [ROOT / "Makefile", ROOT / "pyproject.toml"]
    files += [p for folder in ("tetrad", "tests", "bench") for p in (ROOT / folder).rglob("*.py")]
    return {word.lower() for file in files for word in (file.stem, *WORD.findall(file.read_text()))}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_names_exists(page: Path, words_of_the_source: set[str]) -> None:
    """A name in backticks is a word of the source, or of a program on the page; nothing else tells
    when it goes."""
    text = page.read_text()
    own = {word.lower() for match in FENCE.finditer(text) for word in WORD.findall(match[2])}
    known = words_of_the_source | ELSEWHERE | own
    named = {word for name in NAME.findall(FENCE.sub("", text)) for word in name.split(".") if word}
    assert sorted(word for word in named - {"md", "py"} if word.lower() not in known) == []


def test_every_page_is_in_the_index() -> None:
    listed = {"index.md", *LINK.findall((DOCS / "index.md").read_text())}
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - listed == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_the_package_has_a_page(folder: str) -> None:
    assert (DOCS / f"{folder}.md").exists()
    assert f"tetrad/{folder}/" in (ROOT / "README.md").read_text()


def pages_of(folder: str) -> dict[Path, Path]:
    """The page of a folder, and those of folders inside it (`backends-cpu.md`): each with the
    folder that its file names are relative to."""
    home = ROOT / "tetrad" / folder
    inner = {DOCS / f"{folder}-{p.parent.name}.md": p.parent for p in home.glob("*/__init__.py")}
    return {DOCS / f"{folder}.md": home} | {p: h for p, h in inner.items() if p.exists()}


def named_at_home(folder: str) -> set[Path]:
    return {
        home / name
        for page, home in pages_of(folder).items()
        for name in FILE.findall(page.read_text())
    }


def test_every_file_of_the_package_is_on_the_page_of_its_folder_or_named_in_full_on_another() -> (
    None
):
    everything = "".join(page.read_text() for page in DOCS.glob("*.md"))
    lost = []
    for folder in FOLDERS:
        files = {p for p in (ROOT / "tetrad" / folder).rglob("*.py") if p.name != "__init__.py"}
        names = [str(p.relative_to(ROOT / "tetrad")) for p in files - named_at_home(folder)]
        lost += [name for name in sorted(names) if name not in everything]
    lost += [
        f.name
        for f in sorted((ROOT / "tetrad").glob("[!_]*.py"))
        if f"`tetrad/{f.name}`" not in everything
    ]
    assert lost == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_pages_of_a_folder_name_files_that_exist(folder: str) -> None:
    """Relative to the folder, or in full."""
    lost = []
    for page, home in pages_of(folder).items():
        for name in FILE.findall(page.read_text()):
            homes = (home, home.parent, ROOT / "tetrad", ROOT)
            lost += [] if any((place / name).exists() for place in homes) else [name]
    assert lost == []


def test_the_glossary_is_short_sorted_and_leads_to_files() -> None:
    rows = [line.split("|") for line in table_rows("glossary", "| ")[1:]]
    words, places = [row[1].strip() for row in rows], [row[3].strip(" `") for row in rows]
    assert len(words) <= 60
    assert words == sorted(set(words), key=str.lower)
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_every_decision_has_its_four_parts() -> None:
    for page in sorted((DOCS / "adr").glob("*.md")):
        heads = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        assert heads == ["Question", "Choice", "Cost", "Revisit when"], name_of(page)
