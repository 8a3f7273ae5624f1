"""Test rows, their curves and the training rows: what the metrics of a table are computed from."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

from sstorch.data import SurvivalData, parse_target
from sstorch.exceptions import DataError
from sstorch.metrics.checks import BoolArray, FloatArray, IntArray, check_times
from sstorch.metrics.conversion import check_same_order
from sstorch.metrics.grid import evaluation_times
from sstorch.metrics.probabilities import check_survival
from sstorch.metrics.step_functions import predict_curves

Rows = SurvivalData | tuple[Any, Any]
Curves = tuple[npt.ArrayLike, npt.ArrayLike]


@runtime_checkable
class PredictsSurvival(Protocol):
    """A fitted estimator: anything with this method."""

    def predict_survival_function(self, X: Any, times: Any) -> Any:
        """S(t | x), shape (n, n_times)."""


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Test rows, their curves and the training rows.

    Attributes:
        time: observed times of the test rows, shape (n,).
        event: event indicators of the test rows, shape (n,).
        survival: predicted S on `times`, shape (n, n_times).
        times: the grid, shape (n_times,).
        train: (time, event) of the training rows.
        grids: for each convention with a grid of its own the columns of `times` that belong to it.
        whole: (time, event) of all test rows, where these are some of them, see `take`: windows and horizons
            come from them, so that resamples of the same rows are scored over the same stretch of time.
    """

    time: FloatArray
    event: BoolArray
    survival: FloatArray
    times: FloatArray
    train: tuple[FloatArray, BoolArray]
    grids: dict[str, IntArray]
    whole: tuple[FloatArray, BoolArray]

    @classmethod
    def of(cls, model: PredictsSurvival | Curves, train: Rows, test: Rows) -> Self:
        """Predict, or take, the curves of the test rows.

        Args:
            model: a fitted estimator, see `predict_curves`, or the pair (survival, times) of curves of the
                test rows.
            train: training rows, `SurvivalData` or (X, y) with y as `sstorch.data.parse_target` accepts.
            test: test rows, likewise. X is not read where curves are given.

        Raises:
            DataError: rows, curves or model are not what they should be.
        """
        _, train_time, train_event = split_rows(train, "train")
        X, time, event = split_rows(test, "test")
        if isinstance(test, tuple):
            given = test[1]
            parts = {"y": given} if not isinstance(given, tuple) else {"time": given[0], "event": given[1]}
            curves = {"survival": model[0]} if _is_curves(model) else {}
            check_same_order(X=X, **parts, **curves)
        if _is_curves(model):
            grid = check_times(model[1])
            survival = check_survival(model[0], time.size, grid.size)
            return cls(time, event, survival, grid, (train_time, train_event), {}, (time, event))
        if isinstance(model, type):
            raise DataError(f"model: expected a fitted estimator; got the class {model.__name__} itself.")
        if not isinstance(model, PredictsSurvival):
            raise DataError(
                "model: expected an estimator with predict_survival_function(X, times), or the pair "
                f"(survival, times) of curves; got {type(model).__name__}."
            )
        own = {}
        for convention in ("graf", "sksurv", "surtree", "osst"):
            try:
                own[convention] = evaluation_times(time, train_time, convention)
            except DataError:
                continue  # too few times for it: its metric says so if it is asked for
        grid = np.unique(np.concatenate(list(own.values()))) if own else np.unique(time)
        predicted = predict_curves(model, X, grid)
        check_same_order(X=X, survival=predicted)
        survival = check_survival(predicted, time.size, grid.size)
        grids = {name: np.searchsorted(grid, times) for name, times in own.items()}
        return cls(time, event, survival, grid, (train_time, train_event), grids, (time, event))

    def take(self, rows: IntArray) -> Self:
        """Some test rows, repetitions allowed; grids, windows and training rows stay."""
        return dataclasses.replace(
            self, time=self.time[rows], event=self.event[rows], survival=self.survival[rows]
        )

    def on_grid(self, convention: str) -> tuple[FloatArray, FloatArray]:
        """Curves and times on the grid of a convention, or on the whole grid where it has none."""
        columns = self.grids.get(convention)
        return (
            (self.survival, self.times)
            if columns is None
            else (self.survival[:, columns], self.times[columns])
        )


def split_rows(rows: Rows, name: str) -> tuple[Any, FloatArray, BoolArray]:
    """Features, times and events of rows in one of the accepted forms.

    Raises:
        DataError: another form; the message has the argument's name.
    """
    if isinstance(rows, SurvivalData):
        return rows.frame, rows.time, rows.event
    given: object = rows
    if not isinstance(given, tuple) or len(given) != 2:
        what = (
            f"{type(rows).__name__} of length {len(rows)}" if isinstance(rows, tuple | list) else type(rows)
        )
        raise DataError(f"{name}: expected SurvivalData or the pair (X, (time, event)); got {what}.")
    try:
        time, event = parse_target(rows[1])
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    return rows[0], time, event


def _is_curves(model: object) -> TypeGuard[Curves]:
    return isinstance(model, tuple) and len(model) == 2
