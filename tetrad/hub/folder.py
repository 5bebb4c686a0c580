"""The hub, the folder: models that are on this machine, found by name.

Receives TETRAD_MODELS; returns paths. A model is a .gguf file below the folder, or a Hugging Face
folder; its name is its path there without the ending. What other programs hold (`stores`) is found
beside it, used in place, never copied, and never deleted from here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tetrad.core import lazy
from tetrad.core.errors import FlagError, HubError
from tetrad.core.flags import flag
from tetrad.core.visible import one_line
from tetrad.hub.known import KNOWN, is_latest
from tetrad.hub.reference import Means, ModelRef
from tetrad.hub.stored import (
    StoredModel,
    first_files,
    is_model_folder,
    quant_of,
    stored,
    stored_folder,
    without_quant,
)

if TYPE_CHECKING:
    from tetrad.hub import stores
else:
    stores = lazy.later("tetrad.hub.stores")  # a path needs none of them

DEFAULT_QUANT = "Q4_K_M"  # of org/repo, where none is named


def models_folder() -> Path:
    folder = Path(flag("TETRAD_MODELS") or "~/.cache/tetrad/models").expanduser()
    if folder.exists() and not folder.is_dir():
        raise FlagError(
            f"TETRAD_MODELS={str(folder)!r} is not a directory",
            hint="name one, or leave the variable out",
        )
    return folder


def held_models(folder: Path | None = None) -> list[StoredModel]:
    """Every model that can be named, ours first, each by name."""
    folder = models_folder() if folder is None else folder
    files = (path for path in sorted(folder.rglob("*.gguf")) if path.is_file())
    ours = [stored(path, path.relative_to(folder)) for path in first_files(files)]
    places = (path.parent for path in sorted(folder.rglob("config.json")))
    ours += [
        stored_folder(place, place.relative_to(folder))
        for place in places
        if place != folder and is_model_folder(place)
    ]
    return [*sorted(ours, key=lambda model: model.name.lower()), *stores.others_models()]


def held(ref: ModelRef, models: list[StoredModel] | None = None) -> StoredModel | None:
    """The model on this machine that a word means, by its name here or as what it is elsewhere."""
    models = held_models() if models is None else models
    if ref.means is Means.REPO:
        return of_repository(ref, models)
    found = find(ref.word, models)
    if found is not None:
        return found
    return of_table(ref, models) if ref.entry else exact(f"{ref.word}:latest", models)


def of_repository(ref: ModelRef, models: list[StoredModel]) -> StoredModel | None:
    if ref.file:
        return exact(f"{ref.repo}/{stored(Path(ref.file), Path(ref.file)).name}", models)
    word = f"{ref.repo}:{ref.quant}" if ref.quant else ref.repo
    tagged = f"{ref.repo}:{ref.quant or 'latest'}"  # as ollama has it
    return find(word, models) or exact(f"hf.co/{tagged}", models) or exact(tagged, models)


def of_table(ref: ModelRef, models: list[StoredModel]) -> StoredModel | None:
    """A model of the table: from where it is fetched, or as ollama calls it, where no other quant
    is asked for."""
    entry = ref.entry
    if entry is None:
        return None
    names = [entry.file.removesuffix(".gguf")] if entry.file else []
    if entry in KNOWN:
        names += [entry.name]
        names += [f"{entry.family}:latest"] if is_latest(entry) else []
    found = find(f"{entry.repo}:{entry.quant}", models)
    return found or next(filter(None, (exact(name, models) for name in names)), None)


def exact(name: str, models: list[StoredModel]) -> StoredModel | None:
    return next((model for model in models if model.name.lower() == name.lower()), None)


def find(name: str, models: list[StoredModel] | None = None) -> StoredModel | None:
    """The held model that a name means; one that may mean several is an error that lists them.

    A name is what `tetrad list` shows, or its last part; with the quant as such (`NAME:Q8_0`) or
    left out where there is one only; or org/repo[:QUANT], which prefers the quant that is fetched
    unless another is named.
    """
    models = held_models() if models is None else models
    # a name spelt exactly so comes first
    folds: tuple[Callable[[str], str], ...] = (str, str.lower)
    for fold in folds:
        for kind in (whole_name, last_part, named_part, repository):
            found = kind(fold(name), [(fold(m.name), m) for m in models])
            if kind is repository and len(found) > 1:
                found = [m for m in found if quant_of(m.name) == DEFAULT_QUANT] or found
            if len({m.name for m in found}) > 1:
                raise ambiguous(name, found)
            if found:
                return found[0]
    return None


Named = list[tuple[str, StoredModel]]


def whole_name(word: str, models: Named) -> list[StoredModel]:
    return [m for name, m in models if name == word]


def last_part(word: str, models: Named) -> list[StoredModel]:
    """Of names that are paths: those of ollama (`someone/model:tag`) mean themselves only."""
    return [m for name, m in models if ":" not in name and name.rpartition("/")[2] == word]


def named_part(word: str, models: Named) -> list[StoredModel]:
    """`NAME` or `NAME:QUANT` for a file NAME-QUANT."""
    plain, _, quant = word.partition(":")
    return [
        m for name, m in models
        if has_quant(m,
        quant) and (without_quant(name) == plain or without_quant(name).rpartition("/")[2] == plain)
    ]  # fmt: skip


def repository(word: str, models: Named) -> list[StoredModel]:
    """All files of org/repo, or those of org/repo:QUANT."""
    plain, _, quant = word.partition(":")
    return [
        m
        for name, m in models
        if plain.count("/") == 1 and name.startswith(f"{plain}/") and has_quant(m, quant)
    ]


def has_quant(model: StoredModel, quant: str) -> bool:
    return not quant or quant_of(model.name) == quant.upper()


def to_remove(name: str, every: bool = False) -> list[StoredModel]:
    """The models that `tetrad rm NAME` deletes: exactly the one that is listed so, or those of
    org/repo[:QUANT].

    Raises where there is none, where there are several and `every` was not said, and where one is
    not ours.
    """
    models = held_models()
    named = [(m.name, m) for m in models]
    found = whole_name(name, named) or repository(name, named)
    # The same may also lie in the cache of another program.
    found = [model for model in found if model.is_ours] or found
    if len(found) > 1 and not every:
        raise ambiguous(name, found, "write the whole name of one, or --all for all of them")
    for model in found:
        check_ours(model)
    return found


def ambiguous(name: str, models: list[StoredModel], hint: str = "write the whole name") -> HubError:
    names = ", ".join(one_line(m.name) for m in models)
    return HubError(f"{name!r} may mean {len(models)} models: {names}", hint=hint)


def check_ours(model: StoredModel) -> None:
    if not model.is_ours:
        way = stores.WAYS_TO_DELETE[model.holder].format(one_line(model.name))
        raise HubError(
            f"{one_line(model.name)} is held by {model.holder}, in {one_line(str(model.path))}",
            hint=f"nothing of other programs is deleted from here: {way}",
        )


def remove(model: StoredModel) -> int:
    """Deletes the files of a model and folders left empty; returns the bytes that are free now."""
    check_ours(model)
    freed = model.nbytes
    for path in model.paths:
        path.unlink(missing_ok=True)
        leftover(path).unlink(missing_ok=True)
        origin_of(path).unlink(missing_ok=True)
    for place in sorted({path.parent for path in model.paths}, key=lambda p: -len(p.parts)):
        remove_empty(place)
    return freed


def remove_empty(place: Path) -> None:
    """The folder, and those it lies in, as far as they are empty and ours."""
    top = models_folder()
    while place != top and place.is_relative_to(top) and is_empty(place):
        place.rmdir()
        place = place.parent


def is_empty(place: Path) -> bool:
    return place.is_dir() and not any(place.iterdir())


def origin_of(path: Path) -> Path:
    """Where the URL is written that a model was fetched from."""
    return path.with_name(f".{path.name}.url")


def leftover(path: Path) -> Path:
    """The lock that two fetches of the same model agree by."""
    return path.with_name(f".{path.name}.lock")
