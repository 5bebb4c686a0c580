r"""Station 0, shared words: text of others as it may be shown.

Receives text from a file, a repository, a model or a server; returns the same with what would steer
a terminal, or turn a line around, written out (`\x1b`, `\u202e`): it is seen, not obeyed. What is
printable stays as it is.
"""

from __future__ import annotations

from functools import cache

# (first, last): controls of terminals except tab and line feed, which text is made of; separators
# that some terminals take for line ends; embeddings, overrides and isolates, which reorder what
# follows; halves of characters, which no stream can encode.
STEERING = (
    (0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0x2028, 0x202E), (0x2066, 0x206F), (0xD800, 0xDFFF),
    (0xFFF9, 0xFFFB),
)  # fmt: skip


def visible(text: str) -> str:
    r"""Text of one or more lines.

    >>> visible("a\x1b[2Jb\r\n\tcafé")
    'a\\x1b[2Jb\\r\n\tcafé'
    """
    return text if text.isprintable() else text.translate(written_out())


def one_line(text: str) -> str:
    r"""A name, or any text that stands inside a line: line ends and everything invisible are
    written out as well.

    >>> one_line("model\n  hint: rm\u200b")
    'model\\n  hint: rm\\u200b'
    """
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else escape(c) for c in text)
    )


def json_visible(text: str) -> str:
    r"""JSON with the same meaning: there is such a character only within strings, where it has
    another spelling.

    >>> json_visible('{"a": "\x9b\u202e"}')
    '{"a": "\\u009b\\u202e"}'
    """
    return text if text.isprintable() else text.translate(written_as_json())


def escape(character: str) -> str:
    return ascii(character)[1:-1]


@cache
def written_out() -> dict[int, str]:
    return {code: escape(chr(code)) for code in steering()}


@cache
def written_as_json() -> dict[int, str]:
    return {code: f"\\u{code:04x}" for code in steering()}


def steering() -> list[int]:
    return [code for first, last in STEERING for code in range(first, last + 1)]
