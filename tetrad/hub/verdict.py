"""The hub, verdicts: will a model run here, and if not, why not and what instead.

Receives a description (of a file here or elsewhere) and what else its repository offers; returns a
Verdict. Architecture, tensor types, tokeniser, numbers and shapes are checked as loading would,
and memory is compared with what this machine has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tetrad.core import lazy
from tetrad.core.limits import machine_memory, total_memory
from tetrad.core.record import record
from tetrad.core.visible import one_line
from tetrad.hub.describe import Description
from tetrad.hub.fits import gib

if TYPE_CHECKING:
    from tetrad.models import support
else:
    support = lazy.later("tetrad.models.support")  # architectures: not every command needs them

USUAL = 4096  # tokens of context that memory is counted for, where none are asked for


@record
class Verdict:
    """Whether a model runs here. `problems` say why not; `notes` what to know although it does."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        return not self.problems

    @property
    def line(self) -> str:
        """
        >>> Verdict().line, Verdict(("the architecture 'x' is not known",)).line
        ('runs here', "does not run here: the architecture 'x' is not known")
        """
        said = "; ".join(self.problems or self.notes)
        return one_line(
            ("runs here" if self.runs else "does not run here") + (f": {said}" * bool(said))
        )


def judge(found: Description, context: int = 0) -> Verdict:
    """Everything that can be said without the weights themselves."""
    reasons = support.problems(support.Header(found.path, found.metadata, found.tensors))
    if reasons:
        return Verdict(tuple(reasons))
    need = found.weight_bytes + found.cache_bytes(context or min(found.context, USUAL))
    return Verdict(tuple(too_large(need)), tuple(tight(need)))


def too_large(need: int) -> Iterator[str]:
    memory = total_memory()
    if memory is not None and need > memory:
        yield f"it needs {gib(need)} of memory, this machine has {gib(memory)}"


def tight(need: int) -> Iterator[str]:
    """What fits the machine, but not beside what else runs on it now."""
    free = machine_memory("/", "MemAvailable")
    if free is not None and need > free:
        yield f"it needs {gib(need)} of memory, {gib(free)} are free now"


def runs_quant(quant: str) -> bool:
    return support.runs_quant(quant)
