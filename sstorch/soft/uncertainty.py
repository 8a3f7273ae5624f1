"""Uncertainty of a tree: curves over resamples of the rows."""

from __future__ import annotations

from sstorch.soft.batch import training_rows
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.tree_sample import TreeSample


def bootstrap_trees(
    estimator: SoftEstimator,
    X: object,
    y: object,
    n_resamples: int = 200,
    sample_weight: object = None,
) -> TreeSample:
    """Train trees on bootstrap resamples as one batch.

    The weight of a row is the number of draws of the row or its subject. Preprocessing, starts and the choice
    of the start are repeated in each resample. Imputation, scaling and knots use each distinct drawn row
    once. A band of the sample shows the sampling variation of the fitted curve, including training and
    starts, but not the bias of penalties or leaf family.

    ``estimator`` sets the parameters and is not fitted; ``n_resamples`` is K; rows, outcomes and weights are
    as in :meth:`~sstorch.SoftSurvivalTree.fit`.

    Raises:
        DataError: the data are invalid, or a resample has no event.
        ConfigError: a parameter has an invalid value.

    References:
        Efron (1981), "Censored data and the bootstrap", Journal of the American Statistical Association 76,
        312-319.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> sample = bootstrap_trees(SurvivalRegression(), data.frame, (data.time, data.event), n_resamples=20)
    >>> band = sample.band(data.frame[:1], times=[365.0, 1825.0])
    >>> bool((band.lower < band.median).all() and (band.median < band.upper).all())
    True
    """
    return estimator._resampled(training_rows(X, y, sample_weight), n_resamples)
