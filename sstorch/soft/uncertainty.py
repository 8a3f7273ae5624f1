"""How sure a tree is: its curves over resamples of the rows."""

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
    """Train the tree on resamples of the rows, drawn with replacement, all as one batch.

    How often a row, or a subject with all rows, is drawn is its weight. Everything is done anew on each
    resample: preprocessing, starts and the choice of the start. What is imputed, scaled and where knots are
    comes from the different rows that were drawn, each counted once. So a band of the sample is how far
    the fitted curve would move with other rows of the same population, by training and starts too, and
    nothing of the bias of penalties or leaf.

    ``estimator`` has the parameters of the trees and is not fitted itself; ``n_resamples`` is K; rows,
    outcomes and weights are those of :meth:`~sstorch.SoftSurvivalTree.fit`.

    Raises:
        DataError: the data cannot be used, or hold so few events that a resample has none.
        ConfigError: a parameter has a value that does not exist.

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
