"""DRY: penalties of repeated sequences, against their definition by brute force, and breakers among
tokens."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tetrad.models.decoding.dry import Dry, Heads, breaker_heads
from tetrad.models.decoding.settings import Settings, checked


def common_end(a: list[int], b: list[int]) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[-1 - count] == b[-1 - count]:
        count += 1
    return count


def after_breaker(tokens: list[int], heads: Heads) -> int:
    """Tokens after the last breaker: of those that begin at the same token, after the longest."""
    for at in reversed(range(len(tokens))):
        rest = tokens[at + 1 :]
        fits = [len(tail) for tail in heads.get(tokens[at], ()) if tuple(rest[: len(tail)]) == tail]
        if fits:
            return len(rest) - max(fits)
    return len(tokens)


def expected(tokens: list[int], settings: Settings, heads: Heads, context: int) -> dict[int, float]:
    last = context if settings["dry_penalty_last_n"] < 0 else settings["dry_penalty_last_n"]
    said, found = tokens[max(0, len(tokens) - last) :], dict[int, float]()
    for at in range(len(said) - 1):
        length = min(common_end(said[: at + 1], said), after_breaker(said, heads))
        follows = said[at + 1]
        if length >= settings["dry_allowed_length"] and () not in heads.get(follows, ()):
            penalty = settings["dry_multiplier"] * settings["dry_base"] ** (
                length - settings["dry_allowed_length"]
            )
            found[follows] = min(found.get(follows, 0.0), -penalty)
    return found


@given(
    st.lists(st.integers(0, 4), max_size=60),
    st.sampled_from([-1, 5, 12]),
    st.integers(0, 3),
    st.sampled_from([{}, {4: [()]}, {3: [(4,), (4, 0)], 1: [(2,)]}]),
)
def test_penalties_are_those_of_the_definition(
    tokens: list[int], last: int, allowed: int, heads: Heads
) -> None:
    settings = checked(
        dry_multiplier=0.5, dry_base=1.5, dry_allowed_length=allowed, dry_penalty_last_n=last
    )
    dry = Dry(settings, heads, context=17)
    for token in tokens:
        dry.add(token)
    assert dry.penalties() == expected(tokens[-17:], settings, heads, 17)


def test_a_penalty_stays_finite() -> None:
    dry = Dry(checked(dry_multiplier=1.0, dry_base=1e6), {}, context=4096)
    for _ in range(500):
        dry.add(1)
    assert -3.5e38 < dry.penalties()[1] < -1e30


@dataclass
class Letters:
    """A tokeniser of a few pieces, as far as DRY needs one."""

    pieces: tuple[bytes, ...] = (b"a", b"b", b"c", b"ab", b"x a", b"\n\n")

    def every_bytes(self) -> list[bytes]:
        return list(self.pieces)

    def encode(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]:
        return [self.pieces.index(letter.encode()) for letter in text]


def test_breakers_begin_in_tokens_that_hold_them_or_end_with_their_beginning() -> None:
    heads = breaker_heads(Letters(), ["abc", "\n"])  # type: ignore[arg-type]
    assert heads == {0: [(1, 2)], 3: [(2,)], 4: [(1, 2)], 5: [()]}
