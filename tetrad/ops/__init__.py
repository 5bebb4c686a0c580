"""Every tensor op, one place each; importing this package fills the registry (`core.op.REGISTRY`)."""

from tetrad.ops import arithmetic, bits, compare, convert, movement, reduce, special, transcendental

__all__ = ["arithmetic", "bits", "compare", "convert", "movement", "reduce", "special", "transcendental"]
