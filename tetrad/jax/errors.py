"""JAX's names: `jax.errors`."""

from __future__ import annotations

from tetrad.jax._shell import tables

# Ours are finer or coarser than those of JAX; each name is the class that is raised in its place.
TABLE = {
    "ConcretizationTypeError": "errors.TraceError",
    "InconclusiveDimensionOperation": "errors.ShapeError",
    "JAXIndexError": "errors.BoundsError",
    "JAXTypeError": "errors.TraceError",
    "JaxRuntimeError": "errors.TetradError",
    "JAXRuntimeError": "errors.TetradError",
    "JaxprTypeError": "errors.VerifyError",
    "KeyReuseError": "errors.TetradError",
    "NonConcreteBooleanIndexError": "errors.TraceError",
    "SimplifiedTraceback": "errors.TetradError",
    "TracerArrayConversionError": "errors.TraceError",
    "TracerBoolConversionError": "errors.TraceError",
    "TracerIntegerConversionError": "errors.TraceError",
    "UnexpectedTracerError": "errors.TraceError",
}
__getattr__, __dir__ = tables.offers(globals(), TABLE)
