"""Folds for cross-validation."""

import warnings

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedKFold

from sstorch.exceptions import ConfigError, DataError


def stratified_folds(event: npt.ArrayLike, n_folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Split rows at random into folds of equal size with equal shares of events.

    Args:
        event: (n,) bool or 0/1, 1 = event observed.
        n_folds: Number of folds, at least 2.
        seed: Seed of the shuffle; equal seeds give equal folds.

    Returns:
        Fold (n,) of each row, 0 to n_folds - 1: the rows of fold k are tested by the model of the others.

    Raises:
        DataError: Fewer events than folds, or `event` is not (n,) of 0/1.
        ConfigError: `n_folds` below 2, or `seed` out of range.
    """
    if n_folds < 2:
        raise ConfigError(f"n_folds={n_folds}; cross-validation needs at least 2")
    if not 0 <= seed < 2**32:
        raise ConfigError(f"the seed of the folds must be from 0 to 2**32 - 1, got {seed}")
    values = np.asarray(event)
    if values.ndim != 1 or not np.isin(values, (0, 1)).all():
        raise DataError("event must be one boolean (or 0/1) for each row")
    n_events = int(values.sum())
    if n_events < n_folds:
        raise DataError(
            f"{n_events} events in {len(values)} rows are too few for {n_folds} folds, which need one each; "
            "choose fewer folds"
        )
    fold = np.zeros(len(values), dtype=np.int64)
    splitter = StratifiedKFold(n_splits=n_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # Said when fewer rows than folds are censored, which does no harm: every fold has an event.
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        for k, (_, test) in enumerate(splitter.split(np.zeros((len(values), 1)), values.astype(bool))):
            fold[test] = k
    return fold
