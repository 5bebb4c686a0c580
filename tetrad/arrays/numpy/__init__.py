"""Arrays, NumPy's names: which file has which function, and which names are other names of one.

Tables alone, so that a start loads no function that nobody asks for.
"""

from __future__ import annotations

ALIASES = {  # another name of the same function
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh",
    "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "around": "round", "bitwise_not": "bitwise_invert",
    "concatenate": "concat", "conjugate": "conj", "degrees": "rad2deg",
    "invert": "bitwise_invert", "left_shift": "bitwise_left_shift", "mod": "remainder",
    "power": "pow", "radians": "deg2rad", "right_shift": "bitwise_right_shift",
    "true_divide": "divide", "trapz": "trapezoid",
}  # fmt: skip

HOMES = {  # file of this folder -> its functions
    "arranging": (
        "atleast_1d", "atleast_2d", "atleast_3d", "column_stack", "copy", "dstack", "fliplr",
        "flipud", "hstack", "ndim", "ravel", "rollaxis", "rot90", "shape", "size", "swapaxes",
        "vstack",
    ),
    "averages": ("average", "corrcoef", "cov", "ptp"),
    "bits": ("bitcast",),
    "calling": ("apply_along_axis", "apply_over_axes", "vectorize"),
    "choosing": (
        "choose", "piecewise", "place", "put", "put_along_axis", "select",
    ),
    "comparing": (
        "allclose", "array_equal", "array_equiv", "in1d", "isclose", "iscomplexobj", "isrealobj",
        "isscalar", "iterable",
    ),
    "devices": (
        "Device", "block_until_ready", "default_backend", "device_count", "device_get",
        "device_put", "devices", "local_device_count", "local_devices", "process_count",
        "process_index",
    ),
    "dtypes": (
        "dtype", "issubdtype", "promote_types", "complexfloating", "floating", "generic", "inexact",
        "integer", "number", "signedinteger", "unsignedinteger",
    ),
    "elementwise": (
        "angle", "bitwise_count", "cbrt", "deg2rad", "divmod", "fabs", "fix", "float_power", "fmax",
        "fmin", "fmod", "frexp", "gcd", "heaviside", "iscomplex", "isneginf", "isposinf", "isreal",
        "lcm", "ldexp", "logaddexp2", "modf", "rad2deg", "rint", "round", "sinc", "spacing",
    ),
    "grids": (
        "c_", "diag", "diag_indices", "diag_indices_from", "diagflat", "fill_diagonal",
        "fromfunction", "geomspace", "index_exp", "indices", "ix_", "logspace", "mask_indices",
        "mgrid", "ogrid", "r_", "ravel_multi_index", "s_", "tri", "tril_indices",
        "tril_indices_from", "triu_indices", "triu_indices_from", "unravel_index", "vander",
    ),
    "histograms": (
        "bincount", "digitize", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd",
    ),
    "joining": (
        "append", "array_split", "block", "delete", "dsplit", "hsplit", "insert", "resize", "split",
        "trim_zeros", "vsplit",
    ),
    "lines": ("interp", "trapezoid"),
    "nan": (
        "nan_to_num", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean",
        "nanmin", "nanprod", "nanstd", "nansum", "nanvar",
    ),
    "ordering": (
        "argpartition", "lexsort", "packbits", "partition", "sort_complex", "unpackbits",
    ),
    "polynomials": (
        "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub",
        "polyval", "roots",
    ),
    "products": (
        "cross", "diagonal", "dot", "identity", "inner", "kron", "matvec", "outer", "vdot",
        "vecmat",
    ),
    "quantiles": (
        "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile",
    ),
    "running": ("cumprod", "cumsum", "ediff1d", "gradient", "unwrap"),
    "signals": ("convolve", "correlate"),
    "text": (
        "array_repr", "array_str", "einsum_path", "frombuffer", "fromfile", "fromiter",
        "fromstring", "get_printoptions", "printoptions", "savez", "set_printoptions",
    ),
    "windows": ("bartlett", "blackman", "hamming", "hanning", "kaiser"),
}  # fmt: skip
