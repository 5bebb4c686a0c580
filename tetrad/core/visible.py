r"""Core: untrusted text made safe to print.

Receives text from a file, a repository, a model or a server; returns it with control characters
escaped (`\x1b`, `\u202e`), which would steer a terminal or reorder a line. Printable characters
stay as they are.
"""

from __future__ import annotations

from functools import cache

# (first, last): control characters except tab and line feed; separators that some terminals take
# for line ends; embeddings, overrides and isolates, which reorder text; lone surrogates, which no
# stream can encode.
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
    r"""A name, or any text inside a line: line ends and invisible characters are escaped too.

    >>> one_line("model\n  hint: rm\u200b")
    'model\\n  hint: rm\\u200b'
    """
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else escape(c) for c in text)
    )


def shown(name: str | bytes) -> str:
    r"""A name in quotes, in ASCII and of bounded length: it may hold anything.

    >>> shown("blk.0\x1b")
    "'blk.0\\x1b'"
    """
    return ascii(name if len(name) <= 80 else name[:77]) + ("" if len(name) <= 80 else "...")


def json_visible(text: str) -> str:
    r"""JSON of the same meaning: control characters occur only within strings, where JSON can
    escape them.

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
