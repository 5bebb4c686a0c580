"""Bench, neural networks: encoders, attention, convolutions, norms and losses, and training steps
against PyTorch, JAX, ONNX Runtime and OpenVINO on two threads.

    python bench/neural.py [--only attention] [--quick]

ratio = their time / our time, of the better peer where there are several. Each family of rows is a
file, `neural_<family>.py`, whose `rows` measures those that are asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import neural_attention
import neural_convolution
import neural_encoders
import neural_rows
import neural_training
from common import Options, Report, Row, options

FAMILIES: tuple[Callable[[Options], Iterator[Row]], ...] = (
    neural_attention.rows,
    neural_convolution.rows,
    neural_encoders.rows,
    neural_rows.rows,
    neural_training.rows,
)


def main() -> int:
    chosen = options(__doc__ or "")
    report = Report("neural networks")
    for rows in FAMILIES:
        for row in rows(chosen):
            report.add(row)
    return report.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
