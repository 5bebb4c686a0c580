"""Core: every error that Tetrad raises on purpose.

An error receives a message, the user's source line and a hint. Its text reads: the op, what was
expected and what came; the line; the hint. Control characters are escaped, because names from files
end up in a terminal.
"""

from __future__ import annotations

from tetrad.core.source import Source
from tetrad.core.visible import one_line, visible


def an(noun: str) -> str:
    """
    >>> an("int"), an("list")
    ('an int', 'a list')
    """
    return f"an {noun}" if noun[0] in "aeiouAEIOU" else f"a {noun}"


class TetradError(Exception):
    """Root of all errors raised on purpose; the text says what, where, and what to do."""

    def __init__(
        self, message: str, *, source: Source | None = None, hint: str | None = None
    ) -> None:
        # Messages quote names of tensors and words of servers; a traceback goes to a terminal.
        self.message, self.source, self.hint = (
            visible(message),
            source,
            None if hint is None else visible(hint),
        )
        lines = [self.message]
        if source is not None:
            lines.append(one_line(f"  in {source.function}, {source.file} line {source.line}"))
        if hint is not None:
            lines.append(f"  hint: {self.hint}")
        super().__init__("\n".join(lines))

    def at(self, source: Source) -> TetradError:
        """The same error, located at the user's line."""
        return type(self)(self.message, source=source, hint=self.hint)

    def located(self, source: Source | None) -> TetradError:
        """The same error with this line, if it has none yet."""
        return self if self.source is not None or source is None else self.at(source)


class ShapeError(TetradError, ValueError):
    """Shapes do not fit the op."""


class AxisError(ShapeError, IndexError):
    """The array has no such axis."""


class CopyError(TetradError, ValueError, BufferError):
    """The caller asked for shared memory, but a copy is needed."""


class DtypeError(TetradError, TypeError):
    """An element type the op does not take, or that is not compiled."""


class BoundsError(TetradError, IndexError):
    """An index out of range, in eager or compiled code."""


class RaceError(TetradError):
    """Two invocations of a kernel touch one element, one of them writes, and no barrier stands
    between."""


class RoutingError(BoundsError):
    """A likelihood that is no number, so no experts can be chosen: `token` of the batch and
    `expert` say where."""

    def __init__(
        self, token: int, expert: int, *, source: Source | None = None, hint: str | None = None
    ) -> None:
        self.token, self.expert = token, expert
        message = (
            f"top_experts: the likelihood of expert {expert} is NaN or negative for token {token} "
            "of the batch"
        )
        super().__init__(message, source=source, hint=hint)

    def at(self, source: Source) -> RoutingError:
        return type(self)(self.token, self.expert, source=source, hint=self.hint)


class NanError(TetradError, FloatingPointError):
    """A result is nan, or infinite, and a setting says that this is an error."""


class FactorError(TetradError, ArithmeticError):
    """A matrix without the factors that were asked for: `batch` says which, `pivot` where it
    showed."""

    def __init__(
        self,
        message: str,
        *,
        batch: tuple[int, ...] = (),
        pivot: int = 0,
        source: Source | None = None,
        hint: str | None = None,
    ) -> None:
        self.batch, self.pivot = batch, pivot
        super().__init__(message, source=source, hint=hint)

    def at(self, source: Source) -> FactorError:
        return type(self)(
            self.message, batch=self.batch, pivot=self.pivot, source=source, hint=self.hint
        )


class SingularError(FactorError):
    """A system without a solution, or with many: a pivot is zero, so the reciprocal condition
    number is as well."""

    rcond = 0.0


class TraceError(TetradError, TypeError):
    """Python asked a traced value for something only known when the program runs."""


class TreeError(TraceError, ValueError):
    """Trees that do not fit together, or a class that cannot be taken apart."""


class UnsupportedError(TetradError, NotImplementedError):
    """A case that is not implemented; the text lists what is."""


class DerivativeError(UnsupportedError, TypeError, ValueError):
    """A derivative that a function does not have in this direction. A TypeError and a ValueError
    too: JAX raises the one or the other."""


class VerifyError(TetradError, ValueError):
    """A program breaks a rule of its language; `code` names the rule."""

    def __init__(self, code: str, message: str, **kw: object) -> None:
        self.code = code
        super().__init__(f"{code}: {message}", **kw)  # type: ignore[arg-type]


class ParseError(TetradError, ValueError):
    """Text that is not a program."""

    @classmethod
    def in_line(cls, number: int, text: str, expected: str) -> ParseError:
        """The error of a line in which something else was expected."""
        shown = text if len(text) <= 80 else text[:77] + "..."
        return cls(f"line {number}: expected {expected}, got {shown!r}")


class FileFormatError(TetradError, ValueError):
    """A file that breaks a rule of its format: `file`, `part` (a key, a tensor) and `offset` (in
    bytes) say where."""

    def __init__(
        self,
        message: str,
        *,
        file: str,
        part: str = "",
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.problem, self.file, self.part, self.offset = message, file, part, offset
        byte = "" if offset is None else f"byte {offset}"
        place = one_line(", ".join(filter(None, (file, part, byte))))
        super().__init__(f"{place}: {message}", hint=hint)

    def of(self, file: str) -> FileFormatError:
        """The same error with this file, if whoever raised it did not know one."""
        where = {"file": file, "part": self.part, "offset": self.offset, "hint": self.hint}
        return self if self.file else type(self)(self.problem, **where)  # type: ignore[arg-type]


class FileTooShortError(FileFormatError):
    """A file that ends before what it says is in it."""


class FileChangedError(FileFormatError):
    """A file that was changed in place while it was read, or while a model had its weights
    there."""


class TextError(TetradError, ValueError):
    """Text that cannot be encoded, or token ids that cannot be decoded."""


class TemplateError(TetradError, ValueError):
    """A chat template that is wrong, refuses its messages, or exceeds its limits."""


class HubError(TetradError, RuntimeError):
    """A model that is not there, cannot be fetched, or does not fit this machine."""


class ContextError(TetradError, ValueError):
    """A sequence longer than the context: `tokens` were asked for, `context` fit."""

    def __init__(self, message: str, *, tokens: int, context: int, hint: str | None = None) -> None:
        self.tokens, self.context = tokens, context
        super().__init__(f"{message}: {tokens} tokens, the context holds {context}", hint=hint)


class SettingError(TetradError, ValueError):
    """A setting of a request with a value it cannot have: `name` says which."""

    def __init__(
        self,
        name: str,
        expected: str,
        got: object,
        *,
        source: Source | None = None,
        hint: str | None = None,
    ) -> None:
        self.name = name
        super().__init__(f"{name}: expected {expected}, got {got!r:.80}", source=source, hint=hint)

    def at(self, source: Source) -> TetradError:
        """The name says where."""
        return self


class UnknownSettingError(TetradError, TypeError):
    """No setting has this name; the hint is one with a similar name."""


class LogitsError(TetradError, ArithmeticError):
    """A model that gives no numbers, so that no token can be chosen."""


class BusyError(TetradError, RuntimeError):
    """Every slot holds a sequence that is not finished."""


class Cancelled(TetradError):
    """A request that was given up by whoever asked for it."""


class DeadlineError(TetradError, TimeoutError):
    """A request that was not done when its time was over."""


class ClosedError(TetradError, RuntimeError):
    """Something was asked of a model, or of what carries its requests on, after it was closed."""


class FlagError(TetradError, ValueError):
    """An unknown flag or flag value."""


class CompileError(TetradError, RuntimeError):
    """Code generation failed; a defect of ours, never of the user's program."""


class CheckError(TetradError, RuntimeError):
    """A self-check (TETRAD_CHECK) found compiled code doing wrong."""


class RegistryError(TetradError, ValueError):
    """A kernel that cannot be registered as it was given."""


class UnknownKernelError(TetradError, KeyError):
    """No registered kernel has this id; the hint names similar ones."""

    __str__ = Exception.__str__  # a KeyError would show the quoted text


class DispatchError(TetradError):
    """Root of what dispatch raises. `code` is stable, the text is not."""

    def __init__(
        self, message: str, *, code: str = "", source: Source | None = None, hint: str | None = None
    ) -> None:
        self.code = code
        super().__init__(message, source=source, hint=hint)

    def at(self, source: Source) -> TetradError:
        return type(self)(self.message, code=self.code, source=source, hint=self.hint)


class Rejected(DispatchError, ValueError):
    """dispatch: the program is not acceptable; the code is that of its first problem."""


class BadInputs(DispatchError, ValueError):
    """dispatch: the caller's data, sizes or limits do not fit."""


class BackendError(DispatchError, RuntimeError):
    """dispatch: the back end is missing or failed."""


class TrapError(BackendError):
    """dispatch: a `trap` of the program fired; `trap` is the number it carries, `value` what it
    reports."""

    def __init__(
        self, message: str, trap: int, value: int, *, code: str, source: Source | None = None
    ) -> None:
        self.trap, self.value = trap, value
        super().__init__(message, code=code, source=source)

    def at(self, source: Source) -> TetradError:
        return type(self)(self.message, self.trap, self.value, code=self.code, source=source)


__all__ = [
    name
    for name, kind in globals().items()
    if isinstance(kind, type) and issubclass(kind, TetradError)
]


def __dir__() -> list[str]:
    return __all__
