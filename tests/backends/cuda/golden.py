"""Golden PTX: `python -m tests.backends.cuda.golden` writes the files anew; review the diff."""

from __future__ import annotations

from pathlib import Path

from tetrad.backends.cuda.ptx import ptx
from tetrad.kernel import registry

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "ptx"
FILES = (
    ("tetrad::math::add", "sm_75"),
    ("tetrad::math::dot", "sm_80"),
    ("tetrad::quant::int4_dot_i32", "sm_90"),
    ("tetrad::quant::dnn_int4_pack_f32", "sm_80"),
    ("tetrad::quant::dnn_nf4_unpack_f64", "sm_100"),
    ("tetrad::nn::linear_4bit", "sm_120"),
)


def path_of(id: str, arch: str) -> Path:
    return FOLDER / f"{id.rpartition('::')[2]}.{arch}.ptx"


def text_of(id: str, arch: str) -> str:
    return ptx(registry.entry(id).build(), arch)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for id, arch in FILES:
        path_of(id, arch).write_text(text_of(id, arch))


if __name__ == "__main__":
    main()
