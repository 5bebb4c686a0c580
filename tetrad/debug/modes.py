"""Debug, modes: settings of `td.config` as blocks: no compiling, no nan, no infinity."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tetrad.core.config import config


def disable_jit(disable: bool = True) -> AbstractContextManager[None]:
    """Compiled functions and loops run as they are written, op by op, until the block ends: print,
    step through them, look at values. `td.config.update("disable_jit", True)` is for good.

    >>> import tetrad as td
    >>> f = td.jit(lambda x: x if x > 0 else -x)
    >>> with td.disable_jit():
    ...     f(-2.0)
    Array(2., float32)
    """
    return config.context(disable_jit=disable)


def nans(enabled: bool = True) -> AbstractContextManager[None]:
    """A nan in a result is an error that names the op and the line, until the block ends. As
    `td.config.update("debug_nans", True)`, or TETRAD_CHECK=nan for a whole run.

    >>> import tetrad as td
    >>> with td.debug.nans():
    ...     td.jit(lambda x: td.log(x - 1))(td.asarray([1.5, 0.5]))
    Traceback (most recent call last):
    tetrad.core.errors.NanError: log: the result f32[2] has nan at [1], from -0.5
      in <lambda>, ...
    """
    return config.context(debug_nans=enabled)


def infs(enabled: bool = True) -> AbstractContextManager[None]:
    """As `nans`, for infinities."""
    return config.context(debug_infs=enabled)
