"""Folds of cross-validation: which rows are in which, and training outside with scores inside."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sstorch._types import BoolArray, IntArray
from sstorch.checks import check_integer
from sstorch.data.surv import Surv
from sstorch.data.survival_data import SurvivalData
from sstorch.data.target import parse_subjects
from sstorch.exceptions import ConfigError, DataError


def stratified_folds(
    stratum: npt.ArrayLike,
    n_folds: int,
    seed: int,
    subject: IntArray | None = None,
    names: Sequence[str] = (),
) -> IntArray:
    """Split rows at random into folds of equal size with equal shares of events, or of those of each cause.

    Args:
        stratum: Event indicators (n,), or the cause of each row's event, 0 without an event.
        n_folds: Number of folds, at least 2.
        seed: Seed of the shuffle; equal seeds give equal folds.
        subject: Subject of each row (n,), 0 .. P - 1, for several rows per subject: all rows of a subject are
            in one fold, and subjects with and without an event are distributed evenly. None if each row is a
            subject.
        names: Names of the causes.

    Returns:
        Fold (n,) of each row, 0 to n_folds - 1: the rows of fold k are the test rows of the model trained on
        the others.

    Raises:
        DataError: There are fewer events, or events of a cause, than folds.
        ConfigError: `n_folds` below 2, or `seed` out of range.
    """
    # Imported here: it loads all of scikit-learn's metrics.
    from sklearn.model_selection import StratifiedKFold

    check_integer("n_folds", n_folds, 2)
    if not 0 <= seed < 2**32:
        raise ConfigError(f"the seed of the folds must be from 0 to 2**32 - 1, got {seed}")
    own, of = np.asarray(stratum).astype(np.int64), "rows"
    if subject is not None:
        rows, of = own, "subjects"
        own = np.zeros(int(subject.max()) + 1, dtype=np.int64)
        np.maximum.at(own, subject, rows)
    counts = np.bincount(own, minlength=max(len(names), 1) + 1)[1:]
    if (few := counts < n_folds).any():
        rare = int(few.argmax())
        found = f"{counts[rare]} events in {len(own)} {of}"
        found = f"cause {names[rare]} has {found}," if names else f"{found} are"
        raise DataError(f"{found} too few for {n_folds} folds, which need one each; choose fewer folds")
    fold = np.zeros(len(own), dtype=np.int64)
    splitter = StratifiedKFold(n_splits=n_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # Raised when fewer rows than folds are censored, which does no harm: every fold has an event.
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        for k, (_, test) in enumerate(splitter.split(np.zeros((len(own), 1)), own)):
            fold[test] = k
    return fold if subject is None else fold[subject]


def folds_of(data: SurvivalData | Surv, n_folds: int, seed: int) -> IntArray:
    """Assign rows, or those of an outcome, to folds by subject, stratified by event or cause.

    See :func:`stratified_folds` for arguments, result and errors.
    """
    if isinstance(data, SurvivalData):
        y, subject = data.y, data.subject
    else:
        y, subject = data, None if data.id is None else parse_subjects(data.id, len(data))[0]
    return stratified_folds(y.cause, n_folds, seed, subject, y.causes or ())


@dataclass(frozen=True, eq=False)
class Fold:
    """One fold of a cross-validation."""

    number: int  # from 0
    inside: BoolArray  # True for test rows (n,)
    train: SurvivalData  # rows outside the fold
    test: SurvivalData  # rows inside the fold

    @property
    def parts(self) -> dict[str, SurvivalData]:
        """Training and test rows by name, ``train`` and ``test``."""
        return {"train": self.train, "test": self.test}


def split(data: SurvivalData, folds: IntArray) -> list[Fold]:
    """Training and test rows of every fold, from the fold of each row, (n,), 0 .. K - 1."""
    inside = [folds == number for number in range(int(folds.max()) + 1)]
    return [Fold(k, rows, data.subset(~rows), data.subset(rows)) for k, rows in enumerate(inside)]
