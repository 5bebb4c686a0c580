"""Functions of SciPy that take arrays of any array API namespace, each with arguments.

Run as a program, with SCIPY_ARRAY_API=1 in the environment before SciPy is imported: prints which
gave arrays of ours with the values that NumPy's arrays give.
"""

from __future__ import annotations

import os

os.environ["SCIPY_ARRAY_API"] = "1"

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import cluster, differentiate, fft, integrate, ndimage, optimize, signal, special, stats

import tetrad as td

X = np.linspace(0.1, 2.9, 24).reshape(4, 6)
Y = np.cos(X) + 1.5
ROW = np.sin(np.arange(16.0)) + 1.2
OTHER = np.cos(np.arange(16.0)) + 2.0
IMAGE = np.sin(np.arange(80.0)).reshape(8, 10)
WINDOW = np.asarray([0.25, 0.5, 0.25])

Call = Callable[[Callable[[Any], Any]], Any]


def words(text: str) -> list[str]:
    return text.split()


UNARY = words("erf erfc i0 i0e i1 i1e gammaln digamma log_ndtr ndtr ndtri entr expit logit")
BINARY = words("xlogy gammainc gammaincc rel_entr chdtr chdtrc stdtr betaln")
FOURIER = words("fft ifft fft2 ifft2 fftn ifftn rfft rfft2 rfftn hfft ihfft fftshift ifftshift")
STATISTICS = words(
    "gmean hmean pmean skew kurtosis moment variation describe zscore gzscore sem kstat kstatvar "
    "circmean circvar circstd entropy "
    "skewtest kurtosistest normaltest jarque_bera differential_entropy "
    "gstd tmean tvar tstd tmin tmax tsem directional_stats"
)
PAIRS = words(
    "ttest_ind ttest_rel pearsonr mannwhitneyu ks_2samp bartlett f_oneway cramervonmises_2samp"
)
FILTERS = words(
    "gaussian_filter uniform_filter median_filter sobel prewitt laplace "
    "minimum_filter maximum_filter"
)


def unary(name: str) -> Call:
    given = X / 3 if name in ("ndtri", "logit") else X
    return lambda to: getattr(special, name)(to(given))


def statistic(name: str) -> Call:
    f = getattr(stats, name)
    if name == "pmean":
        return lambda to: f(to(X), 2.0)
    if name in ("kstat", "kstatvar"):
        return lambda to: f(to(ROW))
    return lambda to: f(to(ROW if name != "directional_stats" else X))


CALLS: dict[str, Call] = {
    **{f"special.{n}": unary(n) for n in UNARY},
    **{f"special.{n}": (lambda to, n=n: getattr(special, n)(to(X), to(Y))) for n in BINARY},
    "special.logsumexp": lambda to: special.logsumexp(to(X), axis=1),
    "special.softmax": lambda to: special.softmax(to(X), axis=1),
    "special.log_softmax": lambda to: special.log_softmax(to(X), axis=1),
    **{f"fft.{n}": (lambda to, n=n: getattr(fft, n)(to(X))) for n in FOURIER},
    "fft.irfft": lambda to: fft.irfft(to(X + 1j)),
    **{f"stats.{n}": statistic(n) for n in STATISTICS},
    **{f"stats.{n}": (lambda to, n=n: getattr(stats, n)(to(ROW), to(OTHER))) for n in PAIRS},
    "stats.chisquare": lambda to: stats.chisquare(to(ROW)),
    "stats.power_divergence": lambda to: stats.power_divergence(to(ROW)),
    **{f"ndimage.{n}": (lambda to, n=n: getattr(ndimage, n)(to(IMAGE), 3)) for n in FILTERS[:3]},
    **{f"ndimage.{n}": (lambda to, n=n: getattr(ndimage, n)(to(IMAGE))) for n in FILTERS[3:6]},
    **{f"ndimage.{n}": (lambda to, n=n: getattr(ndimage, n)(to(IMAGE), 3)) for n in FILTERS[6:]},
    "signal.convolve": lambda to: signal.convolve(to(ROW), to(WINDOW)),
    "signal.correlate": lambda to: signal.correlate(to(ROW), to(WINDOW)),
    "signal.fftconvolve": lambda to: signal.fftconvolve(to(ROW), to(WINDOW)),
    "signal.oaconvolve": lambda to: signal.oaconvolve(to(ROW), to(WINDOW)),
    "signal.detrend": lambda to: signal.detrend(to(ROW)),
    "signal.hilbert": lambda to: signal.hilbert(to(ROW)),
    "signal.medfilt": lambda to: signal.medfilt(to(ROW), 3),
    "signal.lfilter": lambda to: signal.lfilter(to(WINDOW), to(np.asarray([1.0])), to(ROW)),
    "signal.resample": lambda to: signal.resample(to(ROW), 8),
    "signal.wiener": lambda to: signal.wiener(to(ROW), 3),
    "integrate.trapezoid": lambda to: integrate.trapezoid(to(X), axis=1),
    "integrate.simpson": lambda to: integrate.simpson(to(X), axis=1),
    "integrate.cumulative_trapezoid": lambda to: integrate.cumulative_trapezoid(to(X), axis=1),
    "integrate.cumulative_simpson": lambda to: integrate.cumulative_simpson(to(X), axis=1),
    "optimize.rosen": lambda to: optimize.rosen(to(ROW)),
    "optimize.rosen_der": lambda to: optimize.rosen_der(to(ROW)),
    "optimize.rosen_hess": lambda to: optimize.rosen_hess(to(ROW)),
    "cluster.vq.whiten": lambda to: cluster.vq.whiten(to(X)),
    "cluster.hierarchy.linkage": lambda to: cluster.hierarchy.linkage(to(X)),
    "differentiate.derivative": lambda to: (
        differentiate.derivative(lambda x: x * x, to(np.asarray([1.0, 2.0]))).df
    ),
}


def parts(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [part for each in found for part in parts(each)]
    if hasattr(found, "statistic"):
        return [found.statistic, found.pvalue]
    return [found] if hasattr(found, "shape") else []


def works(call: Call) -> str:
    """Nothing, or what went wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = parts(call(np.asarray))
        try:
            got = parts(call(td.asarray))
            for one, other in zip(got, want, strict=True):
                if not isinstance(one, td.Array):
                    return f"gave {type(one).__name__}"
                np.testing.assert_allclose(np.asarray(one), other, rtol=1e-6, atol=1e-9)
        except Exception as error:
            return (
                f"{type(error).__name__}: {str(error).splitlines()[0]:.120}" if str(error) else "?"
            )
    return ""


if __name__ == "__main__":
    print(json.dumps({name: works(call) for name, call in CALLS.items()}))
