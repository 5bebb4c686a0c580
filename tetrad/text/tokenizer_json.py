"""The tokeniser of a Hugging Face folder: tokenizer.json, run by the `tokenizers` library.

Receives the path of a folder; returns a `Tokenizer` like that of a GGUF file: text to ids with the
tokens around it that the model expects, pairs of texts, ids to bytes. Which tokens steer the model
is said by tokenizer.json, their roles by the small files beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import tokenizers

from tetrad.core.errors import FileFormatError, TetradError, TextError
from tetrad.core.record import record, replace
from tetrad.formats.json_file import check_file, read_object
from tetrad.formats.strings import Strings
from tetrad.text.lookup import StringTable, spans_of
from tetrad.text.sentencepiece import SPACE, byte_of
from tetrad.text.special import Splitter
from tetrad.text.tokenizer import Tokenizer, check_text, special_tokens, stop_ids
from tetrad.text.vocabulary import TokenKind, Vocabulary, end_of_turn
from tetrad.text.wordpiece import CONTINUES

FILE = "tokenizer.json"
ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
ROLE_FILES = ("special_tokens_map.json", "tokenizer_config.json")  # the latter counts
MOST_BYTES = 256 << 20
MOST_IDS = 64  # that end a turn


@record(eq=False)
class LibraryTokenizer(Tokenizer):
    """A tokeniser that is a library's. `plain` takes control tokens in a text for text."""

    whole: Any = None
    plain: Any = None
    front: tuple[int, ...] = ()  # the ids around a text
    back: tuple[int, ...] = ()

    def encode(
        self, text: str, add_special: bool = True, parse_special: bool = True, guard: str = ""
    ) -> list[int]:
        check_text(text)
        if not parse_special:
            ids = encoded(self.plain, text.replace(guard, "") if guard else text)
        elif guard:
            ids = self.encode_guarded(text, guard)
        else:
            ids = encoded(self.whole, text)
        return self.framed(ids) if add_special else ids

    def encode_guarded(self, text: str, guard: str) -> list[int]:
        """Control tokens are cut out; what is between them is text, once the guard is left out."""
        ids: list[int] = []
        for piece in self.all_special.split(text):
            if isinstance(piece, int):
                ids.append(piece)
                continue
            piece = piece.replace(guard, "")
            piece = piece.lstrip() if ids and ids[-1] in self.strips_after else piece
            ids += encoded(self.plain, piece)
        return ids

    def framed(self, ids: list[int]) -> list[int]:
        """The tokens around a text, where they are not there yet."""
        before = [] if tuple(ids[: len(self.front)]) == self.front else [*self.front]
        behind = [] if self.back and tuple(ids[-len(self.back) :]) == self.back else [*self.back]
        return before + ids + behind

    def encode_pair(
        self, first: str, second: str, most: int | None = None
    ) -> tuple[list[int], list[int]]:
        """Ids of two texts as the model expects them together, and of each id which part of the
        input it is of; at most so many, the longer text is cut first."""
        for text in (first, second):
            check_text(text)
        with while_encoding():
            parts = [self.plain.encode(text, add_special_tokens=False) for text in (first, second)]
            if most is not None:
                around: int = self.plain.num_special_tokens_to_add(is_pair=True)
                lengths = shares(len(parts[0]), len(parts[1]), max(most - around, 0))
                for part, length in zip(parts, lengths, strict=True):
                    part.truncate(length)
            found = self.plain.post_process(*parts, add_special_tokens=True)
        return found.ids, found.type_ids


def shares(first: int, second: int, most: int) -> tuple[int, int]:
    """The lengths that two texts have once the longer one was cut, then both, to fit into `most`.

    >>> shares(3, 4, 9), shares(3, 20, 9), shares(20, 30, 9), shares(30, 20, 9)
    ((3, 4), (3, 6), (4, 5), (5, 4))
    """
    if first + second <= most:
        return first, second
    short = min(first, second, most // 2)
    return (short, most - short) if first <= second else (most - short, short)


def encoded(library: Any, text: str) -> list[int]:
    with while_encoding():
        ids: list[int] = library.encode(text, add_special_tokens=False).ids
    return ids


def tokenizer_from_folder(folder: str, vocab: int) -> LibraryTokenizer:
    """The tokeniser of a folder whose model has `vocab` rows for tokens."""
    path = os.path.join(folder, FILE)
    whole, plain = read_library(path), read_library(path)
    plain.encode_special_tokens = True
    vocabulary = read_tokens(whole, path, vocab)
    vocabulary = with_roles(vocabulary, roles_of(folder, whole))
    added = whole.get_added_tokens_decoder()
    by_text = special_tokens(vocabulary)
    with errors_of_library(lambda said: FileFormatError(f"post_processor: {said}", file=path)):
        front, back = tokens_around(whole)
        whole.encode("a", "a")  # so that pairs are known to work
    return LibraryTokenizer(
        vocabulary=vocabulary,
        stop_ids=stop_ids(vocabulary) | ends_of(folder, len(vocabulary.tokens)),
        adds_bos=vocabulary.bos is not None and vocabulary.bos in front,
        adds_eos=bool(back),
        space_prefix=strips_space(whole),
        byte_level=vocabulary.model == "gpt2",
        strips_after=frozenset(i for i, token in added.items() if token.special and token.rstrip),
        encode_text=lambda text: encoded(plain, text),
        all_special=Splitter(by_text),
        user_defined=Splitter(
            {t: i for t, i in by_text.items() if vocabulary.kinds[i] == TokenKind.USER_DEFINED}
        ),
        whole=whole,
        plain=plain,
        front=front,
        back=back,
    )


def read_library(path: str) -> Any:
    """The library's tokeniser, which neither cuts texts nor fills them up: files may ask for it."""
    if not os.path.exists(path):
        hint = "save it with the tokenizers library, or convert the model to GGUF"
        raise FileFormatError(f"there is no {FILE}", file=os.path.dirname(path), hint=hint)
    check_file(path, MOST_BYTES)
    with errors_of_library(lambda said: FileFormatError(f"no tokeniser: {said}", file=path)):
        made = tokenizers.Tokenizer.from_file(path)
        made.no_truncation()
        made.no_padding()
    return made


@contextmanager
def errors_of_library(error: Callable[[str], TetradError]) -> Iterator[None]:
    """What the library raises becomes an error of ours: also a panic inside, which is no
    `Exception`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, TetradError):
        raise
    except BaseException as found:
        raise error(str(found)[:200]) from None


def while_encoding() -> AbstractContextManager[None]:
    return errors_of_library(lambda said: TextError(f"the tokeniser failed: {said}"))


# -- the vocabulary --------------------------------------------------------------------------------


def read_tokens(library: Any, path: str, most: int) -> Vocabulary:
    """Tokens by id, spelled as a GGUF file spells them."""
    names: dict[str, int] = library.get_vocab(with_added_tokens=True)
    count = max(names.values(), default=-1) + 1
    if not 0 < count <= most:
        raise FileFormatError(f"{count} tokens, the model has rows for {most}", file=path)
    model = model_of(library)
    added = library.get_added_tokens_decoder()
    tokens, kinds = [""] * count, bytearray([TokenKind.UNUSED]) * count
    for text, i in names.items():
        kinds[i] = kind_of(text, added.get(i), model)
        tokens[i] = spelled(text, model) if i not in added else text
    packed = Strings.of(tokens)
    return Vocabulary(
        model=model, tokens=packed, lookup=StringTable(spans_of(packed)),  # type: ignore[arg-type]
        kinds=bytes(kinds), scores=np.zeros(count, np.float32), merges=Strings.of(()),
        bos=None, eos=None, eot=None, sep=None, unk=None, pad=None,
    )  # fmt: skip


def model_of(library: Any) -> str:
    """Which tokeniser of GGUF it is like: how bytes are read from tokens."""
    kind = type(library.model).__name__
    if kind == "WordPiece":
        return "bert"
    if kind == "Unigram":
        return "t5"
    parts = parts_of(library.decoder) | parts_of(library.pre_tokenizer)
    return "gpt2" if "ByteLevel" in parts else "llama"


def parts_of(component: Any) -> set[str]:
    """The kinds of steps that a part of the library's tokeniser is made of."""
    return set() if component is None else kinds_in(json.loads(component.__getstate__()))


def kinds_in(state: object) -> set[str]:
    if isinstance(state, list):
        return {kind for inner in state for kind in kinds_in(inner)}
    if not isinstance(state, dict):
        return set()
    own = {state["type"]} if isinstance(state.get("type"), str) else set()
    return own | {kind for inner in state.values() for kind in kinds_in(inner)}


def strips_space(library: Any) -> bool:
    """Does decoding take a space away that encoding has put before the text?"""
    return bool(parts_of(library.decoder) & {"Strip", "Metaspace"})


def kind_of(text: str, added: Any, model: str) -> int:
    if added is not None:
        return TokenKind.CONTROL if added.special else TokenKind.USER_DEFINED
    return TokenKind.BYTE if model == "llama" and byte_of(text) is not None else TokenKind.NORMAL


def spelled(text: str, model: str) -> str:
    """
    >>> spelled("play", "bert"), spelled("##ing", "bert"), spelled("▁a", "llama")
    ('▁play', 'ing', '▁a')
    """
    if model != "bert":
        return text
    return text.removeprefix(CONTINUES) if text.startswith(CONTINUES) else SPACE + text


# -- roles -----------------------------------------------------------------------------------------


def roles_of(folder: str, library: Any) -> dict[str, int]:
    """Role -> id, as the files beside tokenizer.json name them."""
    found: dict[str, int] = {}
    for name in ROLE_FILES:
        path = os.path.join(folder, name)
        said = read_object(path) if os.path.exists(path) else {}
        for role in ROLES:
            text = text_of(said.get(f"{role}_token"), path, role)
            i = None if text is None else library.token_to_id(text)
            if i is not None:
                found[role] = i
    return found


def text_of(value: object, path: str, role: str) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    if text is not None and not isinstance(text, str):
        part = f"field {role}_token"
        raise FileFormatError(f"expected a token, got {text!r:.60}", file=path, part=part)
    return text


def with_roles(vocabulary: Vocabulary, roles: Mapping[str, int]) -> Vocabulary:
    """Tokens that have a role steer the model, whatever else is said of them."""
    kinds = bytearray(vocabulary.kinds)
    for i in roles.values():
        kinds[i] = TokenKind.CONTROL
    return replace(
        vocabulary,
        kinds=bytes(kinds),
        bos=roles.get("bos", roles.get("cls")),
        eos=roles.get("eos"),
        eot=end_of_turn(vocabulary.tokens, bytes(kinds)),
        **{name: roles.get(name) for name in ("sep", "unk", "pad")},
    )


def tokens_around(library: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the library puts before and behind a text."""
    bare, framed = (
        library.encode("a", add_special_tokens=special).ids for special in (False, True)
    )
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare:
            return tuple(framed[:start]), tuple(framed[start + len(bare) :])
    raise TextError("the tokeniser changes a text when it puts tokens around it")


def ends_of(folder: str, count: int) -> frozenset[int]:
    """Ids that end an answer, as generation_config.json or config.json have it."""
    for name in ("generation_config.json", "config.json"):
        path = os.path.join(folder, name)
        said = read_object(path).get("eos_token_id") if os.path.exists(path) else None
        if said is None:
            continue
        ids: Sequence[object] = said if isinstance(said, list) else [said]
        if len(ids) > MOST_IDS or not all(type(i) is int and i >= 0 for i in ids):
            message = f"expected ids of tokens, got {said!r:.60}"
            raise FileFormatError(message, file=path, part="field eos_token_id")
        return frozenset(i for i in ids if isinstance(i, int) and i < count)
    return frozenset()
