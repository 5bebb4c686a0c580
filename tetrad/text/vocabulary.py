"""The tables of a tokeniser as a GGUF file carries them, checked.

Receives the metadata of the file; returns a `Vocabulary`: tokens with kind and score, merges, and
the ids with a role. What the tables mean is said by the model files beside this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar, cast

import numpy as np

from tetrad.core.errors import FileFormatError, UnsupportedError
from tetrad.core.record import record
from tetrad.formats.strings import Strings
from tetrad.text.lookup import StringTable, spans_of

T = TypeVar("T")


class TokenKind(IntEnum):
    """`tokenizer.ggml.token_type`, numbered as in the file."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL = (TokenKind.CONTROL, TokenKind.UNKNOWN)
SPLIT_FIRST = (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.USER_DEFINED)
MODELS = ("gpt2", "gemma4", "llama", "t5", "bert")
RANKED = ("gpt2", "gemma4")  # have merges
TOKENS, MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
CHARSMAP = "tokenizer.ggml.precompiled_charsmap"
MAX_TOKENS = 1 << 19  # twice those of the largest vocabularies
MAX_MERGES = 1 << 20
MAX_SPECIAL_LENGTH = 1024  # characters; bounds what looking for special tokens can cost
NO_ID = (-1, 0xFFFFFFFF)  # how writers say "none"

# Tokens that end a turn, whatever role the file gives them.
END_NAMES = frozenset(
    (
        *(
            "<|eot_id|>",
            "<|im_end|>",
            "<|end|>",
            "<|return|>",
            "<|call|>",
            "<|flush|>",
            "<|calls|>",
            "<end_of_turn>",
        ),
        *(
            "<|endoftext|>",
            "<|end_of_text|>",
            "</s>",
            "<eos>",
            "[EOS]",
            "<|eom_id|>",
            "<EOT>",
            "_<EOT>",
            "[EOT]",
        ),
        *(
            "<end_of_utterance>",
            "<turn|>",
            "<|tool_response>",
            "<\uff5cend\u2581of\u2581sentence\uff5c>",
            "[e~[",
        ),
    )
)
TURN_NAMES = (  # tried in this order where the file names no end of turn
    *(
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<turn|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
    ),
    "<end_of_utterance>",
)

# Ids that hold where a file of this model does not say.
DEFAULT_IDS: dict[str, dict[str, int]] = {
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "t5": {"eos": 1, "unknown": 2, "padding": 0},
    "bert": {"bos": 101, "seperator": 102, "unknown": 100, "padding": 0},
}


@record(eq=False)
class Vocabulary:
    """Tokens by id, and the roles of some of them (None: no token has it)."""

    model: str
    tokens: Sequence[str]  # decoded when asked for
    lookup: StringTable  # of the tokens
    kinds: bytes  # one Kind per token
    scores: np.ndarray  # f32 per token
    merges: Strings
    bos: int | None
    eos: int | None
    eot: int | None
    sep: int | None
    unk: int | None
    pad: int | None

    def ids_of(self, *kinds: TokenKind) -> list[int]:
        """Every token of these kinds.

        >>> read_vocabulary({"tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": ["a", "b"],
        ...                  "tokenizer.ggml.token_type": [1, 3]}).ids_of(TokenKind.CONTROL)
        [1]
        """
        return np.flatnonzero(self.are(*kinds)).tolist()

    def are(self, *kinds: TokenKind) -> np.ndarray:  # bool per token
        return np.isin(np.frombuffer(self.kinds, np.uint8), kinds)

    def texts(self, ids: Iterable[int]) -> list[str]:
        """The tokens of many ids, which is quicker than one by one."""
        every = list(self.tokens)
        return [every[i] for i in ids]


def wrong(key: str, expected: str, got: object) -> FileFormatError:
    return FileFormatError(f"expected {expected}, got {got}", file="", part=key)


def entry(metadata: Mapping[str, object], key: str, kind: type[T]) -> T | None:
    """A scalar of the metadata, or None where it is absent."""
    value = metadata.get(key)
    if value is None or isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    if kind in (int, bool) and isinstance(value, np.generic) and isinstance(value.item(), kind):
        return value.item()  # type: ignore[no-any-return]
    raise wrong(
        key, f"a value of type {kind.__name__}", f"{type(value).__name__} ({str(value)[:40]})"
    )


def strings(metadata: Mapping[str, object], key: str) -> Strings:
    """An array of strings; bytes among them are those that are not UTF-8."""
    value = metadata.get(key)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise wrong(key, "an array of strings", type(value).__name__)
    if isinstance(value, Strings):
        return value
    if any(not isinstance(text, str | bytes) for text in value):
        at = next(i for i, text in enumerate(value) if not isinstance(text, str | bytes))
        raise wrong(f"{key}[{at}]", "a string of valid UTF-8", repr(value[at])[:60])
    return Strings.of(value)


def texts(metadata: Mapping[str, object], key: str) -> Strings:
    """An array of strings that are all UTF-8."""
    found = strings(metadata, key)
    if (at := found.first_bytes()) is not None:
        raise wrong(f"{key}[{at}]", "a string of valid UTF-8", repr(found[at])[:60])
    return found


def check_count(metadata: Mapping[str, object], key: str, least: int, most: int) -> None:
    """How many strings an array has; said before anything is made of them."""
    value = metadata.get(key)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise wrong(key, "an array of strings", type(value).__name__)
    if not least <= len(value) <= most:
        raise wrong(key, f"{least} to {most} strings", len(value))


def numbers(metadata: Mapping[str, object], key: str, count: int, fill: float) -> np.ndarray:
    """One number per token, `fill` where the key is absent."""
    value = metadata.get(key)
    if value is None:
        return np.full(count, fill, np.float32)
    array = number_array(key, value)
    if array.dtype.kind not in "iuf" or array.shape != (count,):
        raise wrong(
            key, f"{count} numbers, one for each token", f"shape {array.shape} of {array.dtype}"
        )
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise wrong(f"{key}[{at}]", "a finite number", str(array[at]))
    return array.astype(np.float32)


def number_array(key: str, value: object) -> np.ndarray:
    is_list = isinstance(value, list | tuple) and all(
        isinstance(number, int | float) for number in value
    )
    if not is_list and not isinstance(value, np.ndarray):
        raise wrong(key, "an array of numbers", type(value).__name__)
    return np.asarray(value)


def role(metadata: Mapping[str, object], model: str, name: str, count: int) -> int | None:
    """The id with this role: from the file, else the model's default where the vocabulary reaches
    that far."""
    key = f"tokenizer.ggml.{name}_token_id"
    value = entry(metadata, key, int)
    if value is None:
        default = DEFAULT_IDS.get(model, {}).get(name, count)
        return default if default < count else None
    if value in NO_ID:
        return None
    if not 0 <= value < count:
        raise wrong(key, f"an id below the {count} tokens of the vocabulary", value)
    return value


def read_kinds(
    metadata: Mapping[str, object],
    tokens: Sequence[str],
    lookup: StringTable,
    roles: Sequence[int | None],
) -> bytes:
    """The kind of each token; tokens whose name or role says so are control tokens, whatever the
    file claims."""
    array = numbers(metadata, "tokenizer.ggml.token_type", len(tokens), TokenKind.NORMAL)
    kinds = np.where((array >= 0) & (array <= max(TokenKind)), array, TokenKind.UNDEFINED).astype(
        np.uint8
    )
    if metadata.get("tokenizer.ggml.token_type") is None:
        kinds[[i for i in roles if i is not None]] = TokenKind.CONTROL
    ends = {i: tokens[i] for i in lookup.places(END_NAMES)}
    if "<|tool_response>" in ends.values():  # Gemma 4 also has HTML tags as tokens, </s> among them
        ends = {i: text for i, text in ends.items() if text != "</s>"}
    kinds[list(ends)] = TokenKind.CONTROL
    return kinds.tobytes()


def read_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """The vocabulary that `metadata` describes, every table checked against the number of
    tokens."""
    model = entry(metadata, "tokenizer.ggml.model", str)
    if model not in MODELS:
        raise UnsupportedError(
            f"tokenizer.ggml.model: tokeniser {model!r} is not supported",
            hint=f"supported are {', '.join(MODELS)}",
        )
    check_count(metadata, TOKENS, 1, MAX_TOKENS)
    if model in RANKED:
        check_count(metadata, MERGES, 0, MAX_MERGES)
    packed = texts(metadata, TOKENS)
    tokens = cast(Sequence[str], packed)
    ids = {
        name: role(metadata, model, name, len(tokens))
        for name in ("bos", "eos", "eot", "seperator", "unknown", "padding", "cls")
    }
    if (
        model == "bert"
        and metadata.get("tokenizer.ggml.bos_token_id") is None
        and ids["cls"] is not None
    ):
        ids["bos"] = ids["cls"]
    lookup = StringTable(spans_of(packed))
    kinds = read_kinds(metadata, tokens, lookup, list(ids.values()))
    return Vocabulary(
        model=model,
        tokens=tokens,
        lookup=lookup,
        kinds=kinds,
        scores=numbers(metadata, "tokenizer.ggml.scores", len(tokens), 0.0),
        merges=strings(metadata, MERGES) if model in RANKED else Strings.of(()),
        bos=ids["bos"],
        eos=ids["eos"],
        eot=ids["eot"] if ids["eot"] is not None else end_of_turn(tokens, kinds),
        sep=ids["seperator"],
        unk=ids["unknown"],
        pad=ids["padding"],
    )


def end_of_turn(tokens: Sequence[str], kinds: bytes) -> int | None:
    """The token that ends a turn, by its name, where the file names none."""
    control = np.flatnonzero(np.frombuffer(kinds, np.uint8) == TokenKind.CONTROL).tolist()
    named = {tokens[i]: i for i in control}
    return next((named[name] for name in TURN_NAMES if name in named), None)
