"""The alphabet of byte-level tokens: every byte as a character that can be seen.

Receives bytes or the text of a token; returns the other.
"""

from __future__ import annotations


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte: itself where it can be seen, else a character from
    U+0100 on."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [b for b in range(256) if b not in seen]
    shown = {b: chr(b) for b in seen} | {b: chr(0x100 + i) for i, b in enumerate(hidden)}
    return {b: shown[b] for b in range(256)}


BYTE_TO_CHAR = byte_alphabet()
# For `translate`, over Latin-1 and the stand-ins; what is not of the alphabet becomes a character
# that is no byte.
TO_TEXT = {byte: ord(char) for byte, char in BYTE_TO_CHAR.items()}
TO_BYTES = dict.fromkeys(range(256), 0xFFFF) | {
    ord(char): byte for byte, char in BYTE_TO_CHAR.items()
}


def byte_level_bytes(text: str) -> bytes:
    """What a byte-level token stands for; a token with a character outside the alphabet stands for
    its own text.

    >>> byte_level_bytes("Ġhi"), byte_level_bytes("a b")
    (b' hi', b'a b')
    """
    try:
        return text.translate(TO_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def byte_level_text(raw: bytes) -> str:
    """
    >>> byte_level_text(b" hi")
    'Ġhi'
    """
    return raw.decode("latin-1").translate(TO_TEXT)
