"""Recurrent layers, as `td.nn.lstm` and `td.nn.gru`: plain functions of weights, which are named as
PyTorch names them, and sequences.

Receives weights and x [batch, time, inputs]; returns the hidden states [batch, time, hidden] and
the last states [layers, batch, hidden]. What depends on x alone is one product before the loop; the
loop is a scan, of which a small one is one kernel. `td.nn` loads this module when it is first
used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tetrad import nn, random
from tetrad.arrays import functions as td
from tetrad.core.dtypes import as_dtype, f32
from tetrad.core.errors import SettingError, ShapeError
from tetrad.core.record import record
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import scan
from tetrad.tracing.operands import as_array

Weights = Mapping[str, Any]
States = tuple[Array, ...]  # [batch, hidden] each: h, and c of an LSTM
Step = Callable[[States, Array, Array, Any], States]


@record
class RecurrentCell:
    """What distinguishes a kind of layer: its gates, its states, and one step."""

    name: str
    gates: int
    states: int
    step: Step


@record
class LayerWeights:
    """One layer in one direction; biases may be None."""

    inputs: Any  # [gates * hidden, inputs]
    hidden: Any  # [gates * hidden, hidden]
    input_bias: Any
    hidden_bias: Any


def lstm(
    weights: Weights, x: Any, state: tuple[Any, Any] | None = None, *, time_major: bool = False
) -> tuple[Array, tuple[Array, Array]]:
    """Long short-term memory: hidden states [batch, time, hidden] and the last states h and c.

    `weights` has the names of `torch.nn.LSTM`: weight_ih_l0 [4 hidden, inputs], weight_hh_l0
    [4 hidden, hidden], bias_ih_l0, bias_hh_l0 [4 hidden] with gates in the order input, forget,
    cell, output; l1, l2, ... for more layers, `_reverse` for the way back, whose states stand
    beside those of the way there. x is [batch, time, inputs], with `time_major` [time, batch,
    inputs]; the batch may be left out. States are [layers * directions, batch, hidden], zero if not
    given.

    >>> import tetrad as td
    >>> weights = td.nn.lstm_init(td.random.key(0), 8, 16, num_layers=2)
    >>> y, (h, c) = td.nn.lstm(weights, td.ones((4, 10, 8)))
    >>> y.shape, h.shape, c.shape
    ((4, 10, 16), (2, 4, 16), (2, 4, 16))
    """
    y, (h, c) = _run(LSTM, weights, x, state, time_major)
    return y, (h, c)


def gru(
    weights: Weights, x: Any, state: Any = None, *, time_major: bool = False
) -> tuple[Array, Array]:
    """Gated recurrent units: hidden states [batch, time, hidden] and the last of them.

    As `lstm`, with the weights of `torch.nn.GRU`: three gates, reset, update and new, and one
    state, [layers * directions, batch, hidden].

    >>> import tetrad as td
    >>> weights = td.nn.gru_init(td.random.key(0), 8, 16, bidirectional=True)
    >>> y, h = td.nn.gru(weights, td.ones((4, 10, 8)))
    >>> y.shape, h.shape
    ((4, 10, 32), (2, 4, 16))
    """
    y, (h,) = _run(GRU, weights, x, None if state is None else (state,), time_major)
    return y, h


def lstm_init(key: Any, inputs: int, hidden: int, **settings: Any) -> dict[str, Array]:
    """Weights of `lstm`: `num_layers=1`, `bidirectional=False`, `bias=True`, `dtype`; uniform
    within 1 / sqrt(hidden)."""
    return _init(LSTM, key, inputs, hidden, **settings)


def gru_init(key: Any, inputs: int, hidden: int, **settings: Any) -> dict[str, Array]:
    """Weights of `gru`, with the settings of `lstm_init`."""
    return _init(GRU, key, inputs, hidden, **settings)


# -- one step --------------------------------------------------------------------------------------


def _lstm_step(states: States, row: Array, weight: Array, bias: Any) -> States:
    h, c = states
    gates = row + td.matmul(h, weight)
    i, f, g, o = _parts(gates, 4)
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * td.tanh(g)
    return nn.sigmoid(o) * td.tanh(c), c


def _gru_step(states: States, row: Array, weight: Array, bias: Any) -> States:
    """The reset gate takes from the product with the last state, its bias included."""
    (h,) = states
    gates = td.matmul(h, weight)
    gates = gates if bias is None else gates + bias
    (r, z, n), (x_r, x_z, x_n) = _parts(gates, 3), _parts(row, 3)
    r, z = nn.sigmoid(x_r + r), nn.sigmoid(x_z + z)
    n = td.tanh(x_n + r * n)
    return (n + z * (h - n),)


def _parts(gates: Array, count: int) -> list[Array]:
    size = gates.shape[-1] // count
    return [gates[..., i * size : (i + 1) * size] for i in range(count)]


LSTM = RecurrentCell("lstm", 4, 2, _lstm_step)
GRU = RecurrentCell("gru", 3, 1, _gru_step)


# -- layers ----------------------------------------------------------------------------------------


def _run(
    cell: RecurrentCell, weights: Weights, x: Any, state: Any, time_major: bool
) -> tuple[Array, States]:
    x, layers = as_array(x), _layers(cell, weights)
    if x.ndim not in (2, 3) or not x.dtype.is_float:
        fail(ShapeError, f"{cell.name}: x is floats [batch, time, inputs], got {x.type}")
    is_single = x.ndim == 2
    x = td.expand_dims(x, axis=1) if is_single else x if time_major else td.moveaxis(x, 0, 1)
    states = _states(cell, layers, x, state, is_single)
    last: list[States] = []
    for number, directions in enumerate(layers):
        made = [
            _direction(cell, one, x, states[len(directions) * number + way], way == 1)
            for way, one in enumerate(directions)
        ]
        x = made[0][0] if len(made) == 1 else td.concat([y for y, _ in made], axis=-1)
        last += [ended for _, ended in made]
    ends = tuple(td.stack(parts, axis=0) for parts in zip(*last, strict=True))
    if is_single:
        return x[:, 0], tuple(end[:, 0] for end in ends)
    return x if time_major else td.moveaxis(x, 0, 1), ends


def _direction(
    cell: RecurrentCell, one: LayerWeights, x: Array, states: States, backwards: bool
) -> tuple[Array, States]:
    """x [time, batch, inputs] through one layer in one direction. Halves are carried in f32."""
    dtype = x.dtype
    wide = f32 if dtype.bits < 32 else dtype
    _check(cell, one, x)
    # the hidden bias of an LSTM is added to the rows once, that of a GRU stands inside a gate
    is_apart = cell is GRU and one.hidden_bias is not None
    rows = nn.linear(x, one.inputs, one.input_bias)
    rows = rows if is_apart or one.hidden_bias is None else rows + one.hidden_bias
    rows = td.astype(rows, wide)
    weight = td.astype(td.matrix_transpose(as_array(one.hidden)), wide)
    bias = td.astype(as_array(one.hidden_bias), wide) if is_apart else None

    def step(states: States, row: Array) -> tuple[States, Array]:
        after = cell.step(states, row, weight, bias)
        return after, after[0]

    begin = tuple(td.astype(s, wide) for s in states)
    ended, y = scan(step, begin, rows, reverse=backwards)
    return td.astype(y, dtype), tuple(td.astype(s, dtype) for s in ended)


def _check(cell: RecurrentCell, one: LayerWeights, x: Array) -> None:
    inputs, hidden = as_array(one.inputs), as_array(one.hidden)
    size = hidden.shape[-1]
    wanted = [(cell.gates * size, x.shape[-1]), (cell.gates * size, size)]
    biases = [as_array(b).shape for b in (one.input_bias, one.hidden_bias) if b is not None]
    fits = [inputs.shape, hidden.shape] == wanted and all(b == wanted[0][:1] for b in biases)
    if not fits:
        message = f"{cell.name}: weights {inputs.type} and {hidden.type} do not fit x {x.type}"
        hint = (
            f"weight_ih is [{cell.gates} hidden, inputs], weight_hh [{cell.gates} hidden, hidden]"
        )
        fail(ShapeError, message, hint)


def _layers(cell: RecurrentCell, weights: Weights) -> list[list[LayerWeights]]:
    """Of every layer its directions, by the names of the weights."""
    found: list[list[LayerWeights]] = []
    used: set[str] = set()
    while f"weight_ih_l{len(found)}" in weights:
        layer = []
        for way in ("", "_reverse"):
            ends = [
                f"{n}_l{len(found)}{way}" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            if ends[0] in weights:
                if ends[1] not in weights:
                    raise SettingError(f"{cell.name}: weights", ends[1], sorted(weights))
                layer.append(LayerWeights(*(weights.get(end) for end in ends)))
                used.update(ends)
        found.append(layer)
    if not found or len({len(layer) for layer in found}) > 1 or set(weights) - used:
        expected = "weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, and l1, ... and _reverse"
        raise SettingError(f"{cell.name}: weights", expected, sorted(weights))
    return found


def _states(
    cell: RecurrentCell, layers: list[list[LayerWeights]], x: Array, state: Any, is_single: bool
) -> list[States]:
    """The first states of every layer and direction."""
    size, count = as_array(layers[0][0].hidden).shape[-1], sum(map(len, layers))
    shape = (count, x.shape[1], size)
    if state is None:
        zero = td.zeros(shape[1:], dtype=x.dtype)
        return [(zero,) * cell.states] * count
    given = [as_array(s) for s in state]
    given = [td.expand_dims(s, axis=1) for s in given] if is_single else given
    if len(given) != cell.states or any(s.shape != shape for s in given):
        came = ", ".join(str(s.type) for s in given)
        fail(ShapeError, f"{cell.name}: {cell.states} states are {list(shape)} each, got {came}")
    return [tuple(s[i] for s in given) for i in range(count)]


def _init(
    cell: RecurrentCell, key: Any, inputs: int, hidden: int, *, num_layers: int = 1,
    bidirectional: bool = False, bias: bool = True, dtype: Any = float,
) -> dict[str, Array]:  # fmt: skip
    if min(inputs, hidden, num_layers) < 1:
        raise SettingError(f"{cell.name}_init: sizes", "at least 1", (inputs, hidden, num_layers))
    ways, rows = ("", "_reverse") if bidirectional else ("",), cell.gates * hidden
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(num_layers):
        width = inputs if layer == 0 else hidden * len(ways)
        for way in ways:
            shapes[f"weight_ih_l{layer}{way}"] = (rows, width)
            shapes[f"weight_hh_l{layer}{way}"] = (rows, hidden)
            if bias:
                shapes |= {f"bias_{part}_l{layer}{way}": (rows,) for part in ("ih", "hh")}
    keys, bound = random.split(key, len(shapes)), hidden**-0.5
    return {
        name: random.uniform(keys[i], shape, as_dtype(dtype), -bound, bound)
        for i, (name, shape) in enumerate(shapes.items())
    }
