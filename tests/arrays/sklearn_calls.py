"""Functions and estimators of scikit-learn that take arrays of any array API namespace.

Run as a program: prints which gave arrays of ours (or numbers) with the values that NumPy's arrays
give.
"""

from __future__ import annotations

import os

os.environ["SCIPY_ARRAY_API"] = "1"

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn
from sklearn import decomposition, discriminant_analysis, linear_model, metrics, preprocessing

import tetrad as td

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4))
TARGET = X @ np.asarray([1.0, -2.0, 0.5, 0.0]) + 0.1 * RNG.normal(size=20)
NEAR = TARGET + 0.1 * RNG.normal(size=20)
LABELS = (X[:, 0] > 0).astype(np.int64)
GUESSES = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
SCORES = 1 / (1 + np.exp(-X[:, 0]))
POSITIVE, NEARLY = np.abs(TARGET) + 0.5, np.abs(NEAR) + 0.5

Call = Callable[[Callable[[Any], Any]], Any]


def words(text: str) -> list[str]:
    return text.split()


REGRESSION = words(
    "mean_squared_error mean_absolute_error root_mean_squared_error r2_score max_error "
    "mean_absolute_percentage_error explained_variance_score "
    "median_absolute_error mean_pinball_loss "
    "d2_absolute_error_score d2_pinball_score"
)
ABOVE_ZERO = words(
    "mean_squared_log_error root_mean_squared_log_error mean_gamma_deviance mean_poisson_deviance "
    "mean_tweedie_deviance d2_tweedie_score"
)
CLASSES = words(
    "accuracy_score zero_one_loss balanced_accuracy_score f1_score precision_score recall_score "
    "jaccard_score hamming_loss matthews_corrcoef cohen_kappa_score confusion_matrix "
    "multilabel_confusion_matrix precision_recall_fscore_support class_likelihood_ratios"
)
RANKS = words("roc_auc_score roc_curve det_curve precision_recall_curve average_precision_score")
KERNELS = words(
    "cosine_similarity cosine_distances euclidean_distances linear_kernel polynomial_kernel "
    "rbf_kernel sigmoid_kernel laplacian_kernel "
    "manhattan_distances additive_chi2_kernel chi2_kernel "
    "paired_cosine_distances paired_euclidean_distances paired_manhattan_distances"
)
SCALERS = {
    "StandardScaler": preprocessing.StandardScaler,
    "MinMaxScaler": preprocessing.MinMaxScaler,
    "MaxAbsScaler": preprocessing.MaxAbsScaler,
    "Normalizer": preprocessing.Normalizer,
    "Binarizer": preprocessing.Binarizer,
    "KernelCenterer": preprocessing.KernelCenterer,
    "PolynomialFeatures": preprocessing.PolynomialFeatures,
}


def scaled(make: Any) -> Call:
    return lambda to: make().fit(to(X[:4])).transform(to(X[:4]))


def of_pairs(name: str) -> Call:
    f = getattr(metrics.pairwise, name)
    given = np.abs(X) if "chi2" in name else X
    return lambda to: f(to(given), to(given[::-1].copy()))


CALLS: dict[str, Call] = {
    **{n: (lambda to, n=n: getattr(metrics, n)(to(TARGET), to(NEAR))) for n in REGRESSION},
    **{n: (lambda to, n=n: getattr(metrics, n)(to(POSITIVE), to(NEARLY))) for n in ABOVE_ZERO},
    **{n: (lambda to, n=n: getattr(metrics, n)(to(LABELS), to(GUESSES))) for n in CLASSES},
    **{n: (lambda to, n=n: getattr(metrics, n)(to(LABELS), to(SCORES))) for n in RANKS},
    "log_loss": lambda to: metrics.log_loss(to(LABELS), to(SCORES)),
    "brier_score_loss": lambda to: metrics.brier_score_loss(to(LABELS), to(SCORES)),
    "auc": lambda to: metrics.auc(to(np.arange(5.0)), to(np.arange(5.0) ** 2)),
    "entropy": lambda to: metrics.cluster.entropy(to(LABELS)),
    **{n: of_pairs(n) for n in KERNELS},
    **{n: scaled(make) for n, make in SCALERS.items()},
    "LabelEncoder": lambda to: preprocessing.LabelEncoder().fit_transform(to(LABELS)),
    "label_binarize": lambda to: preprocessing.label_binarize(to(LABELS + 0), classes=[0, 1, 2]),
    "scale": lambda to: preprocessing.scale(to(X)),
    "minmax_scale": lambda to: preprocessing.minmax_scale(to(X)),
    "maxabs_scale": lambda to: preprocessing.maxabs_scale(to(X)),
    "normalize": lambda to: preprocessing.normalize(to(X)),
    "binarize": lambda to: preprocessing.binarize(to(X)),
    "PCA.explained_variance_": lambda to: (
        decomposition.PCA(2, svd_solver="full").fit(to(X)).explained_variance_
    ),
    "PCA.transform": lambda to: decomposition.PCA(2, svd_solver="full").fit_transform(to(X)) ** 2,
    "PCA.covariance_eigh": lambda to: (
        decomposition.PCA(2, svd_solver="covariance_eigh").fit_transform(to(X)) ** 2
    ),
    "Ridge.coef_": lambda to: linear_model.Ridge(solver="svd").fit(to(X), to(TARGET)).coef_,
    "Ridge.predict": lambda to: (
        linear_model.Ridge(solver="svd").fit(to(X), to(TARGET)).predict(to(X))
    ),
    "RidgeCV.coef_": lambda to: linear_model.RidgeCV().fit(to(X), to(TARGET)).coef_,
    "LinearDiscriminantAnalysis": lambda to: (
        discriminant_analysis.LinearDiscriminantAnalysis()
        .fit(to(X), to(LABELS))
        .decision_function(to(X))
    ),
}


def parts(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [part for each in found for part in parts(each)]
    return [] if found is None else [found]


def works(call: Call) -> str:
    """Nothing, or what went wrong."""
    with warnings.catch_warnings(), sklearn.config_context(array_api_dispatch=True):
        warnings.simplefilter("ignore")
        want = parts(call(np.asarray))
        try:
            for one, other in zip(parts(call(td.asarray)), want, strict=True):
                if isinstance(one, np.ndarray):
                    return "gave an array of NumPy"
                np.testing.assert_allclose(np.asarray(one), other, rtol=1e-6, atol=1e-9)
        except Exception as error:
            return f"{type(error).__name__}: {f'{error}:'.splitlines()[0]:.140}"
    return ""


if __name__ == "__main__":
    print(json.dumps({name: works(call) for name, call in CALLS.items()}))
