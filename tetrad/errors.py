"""The public errors, `td.errors`: every error tetrad raises on purpose, as a module of its own.

The classes are those of `tetrad.core.errors`, for `import tetrad.errors` and `from tetrad.errors
import ShapeError`.
"""

from __future__ import annotations

from tetrad.core.errors import (
    AxisError,
    BackendError,
    BadInputs,
    BoundsError,
    BusyError,
    Cancelled,
    CheckError,
    ClosedError,
    CompileError,
    ContextError,
    CopyError,
    DeadlineError,
    DerivativeError,
    DispatchError,
    DtypeError,
    FactorError,
    FileChangedError,
    FileFormatError,
    FileTooShortError,
    FlagError,
    HubError,
    LogitsError,
    NanError,
    ParseError,
    RaceError,
    RegistryError,
    Rejected,
    RoutingError,
    SettingError,
    ShapeError,
    SingularError,
    TemplateError,
    TetradError,
    TextError,
    TraceError,
    TrapError,
    TreeError,
    UnknownKernelError,
    UnknownSettingError,
    UnsupportedError,
    VerifyError,
)

__all__ = [
    "AxisError", "BackendError", "BadInputs", "BoundsError", "BusyError", "Cancelled",
    "CheckError", "ClosedError", "CompileError",
    "ContextError", "CopyError", "DeadlineError", "DerivativeError", "DispatchError",
    "DtypeError", "FactorError",
    "FileChangedError",
    "FileFormatError", "FileTooShortError", "FlagError", "HubError", "LogitsError", "NanError",
    "ParseError",
    "RaceError",
    "RegistryError", "Rejected",
    "RoutingError", "SettingError", "ShapeError", "SingularError", "TemplateError", "TetradError",
    "TextError",
    "TraceError", "TrapError", "TreeError", "UnknownKernelError", "UnknownSettingError",
    "UnsupportedError", "VerifyError",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
