"""Models whose predictions gates are distilled from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.base import median_event_time
from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.curves import check_takes_times, predict_curves
from sstorch.nn import SoftTree
from sstorch.objective import Sample
from sstorch.optim.starts.regression_tree import log_hazard_targets, predicted_log_time

# Of rows whose hazard underflows, and of those that are all but sure to have the event.
_LEAST, _MOST = 1e-12, 1e2


@dataclass(frozen=True)
class Teacher:
    """A model that predicts survival or incidences, as a source of targets."""

    # fitted: anything with ``predict_survival_function``, of scikit-survival, of lifelines or of this
    # package, a function ``(X, times)`` that gives survival curves (n, n_times), or with competing causes
    # anything with ``predict_cumulative_incidence(X, times)``, (n, K, n_times)
    model: Any
    refit: bool = False  # whether it is trained anew on each of some splits, as folds and resamples are

    @property
    def name(self) -> str:
        """Of the model, for texts."""
        return str(getattr(self.model, "__name__", type(self.model).__name__))

    def fitted_to(self, data: SurvivalData) -> Teacher:
        """The teacher, trained on the rows if not fitted yet; ConfigError: it lacks the called method."""
        wanted = "predict_survival_function" if data.causes is None else "predict_cumulative_incidence"
        known = hasattr(self.model, wanted) or (callable(self.model) and data.causes is None)
        if isinstance(self.model, type) or not known:  # of a class, whose methods need an object
            plain = ", or a function (X, times) that gives survival curves (n, n_times)"
            raise ConfigError(
                f"teacher must have a method {wanted}(X, times){plain * (data.causes is None)}, got "
                f"{self.model!r}"
            )
        if hasattr(self.model, wanted):
            check_takes_times(self.model, wanted, "teacher")
        if isinstance(self.model, BaseEstimator):
            try:
                check_is_fitted(self.model)
            except NotFittedError:
                return Teacher(self._trained_on(data))
        return Teacher(self.model)

    def targets(self, splits: Sequence[SurvivalData], sample: Sample) -> Tensor:
        """Targets of R problems, ordered by split, (R, J, M): the log cumulative hazard of each row."""
        width, each = sample.weight.shape[-1], []
        for data in splits:
            found = (Teacher(self._trained_on(data)) if self.refit else self)._targets(data)
            each.append(torch.as_tensor(np.pad(found, ((0, 0), (0, width - found.shape[1])))))
        return torch.stack(each).repeat_interleave(torch.tensor(sample.x.counts), dim=0).to(sample.weight)

    def _trained_on(self, data: SurvivalData) -> Any:
        """A model of the same parameters that is fitted to these rows alone."""
        if not hasattr(self.model, "fit") or not hasattr(self.model, "get_params"):
            raise ConfigError(
                f"{self.name} cannot be retrained on folds or resamples, which a teacher must be there: "
                "it has no fit(X, y) with get_params"
            )
        own = type(self.model).__module__.startswith("sstorch")
        model = clone(self.model)
        model.fit(
            _features(self.model, data.frame),
            data.y.weighted(data.uneven_weight) if own else data.y.to_structured(),
        )
        return model

    def _targets(self, data: SurvivalData) -> FloatArray:
        """Log cumulative hazard at the median event time, of each cause, (J, n)."""
        at, X, expected = np.array([median_event_time(data)]), _features(self.model, data.frame), [len(data)]
        if data.causes is not None:
            given = self.model.predict_cumulative_incidence(X, at)
            expected.append(len(data.cause_names))
        elif hasattr(self.model, "predict_survival_function"):
            given = predict_curves(self.model, X, at)
        else:
            given = self.model(X, at)
        given = np.asarray(given, dtype=np.float64)
        if list(given.shape) != [*expected, 1] or not ((given > -1e-6) & (given < 1 + 1e-6)).all():
            raise DataError(
                f"teacher {self.name} must give probabilities of shape {(*expected, 1)}, {len(data)} rows "
                f"at 1 time, got {given.shape}, or values outside 0 to 1 or NaN"
            )
        survival = given.T if data.causes is None else 1 - given[..., 0].T
        hazard = -np.log(np.clip(survival, np.exp(-_MOST), 1.0))
        targets: FloatArray = np.log(np.clip(hazard, _LEAST, None))
        if data.causes is not None:  # the likelihood weighs squared differences of log hazards by events
            events = [data.sample_weight[data.cause == k + 1].sum() for k in range(len(targets))]
            targets = np.sqrt(events)[:, None] * targets
        return targets


def _features(model: Any, frame: pd.DataFrame) -> Any:
    """Rows as a model takes them: an array where it was fitted to one."""
    has_names = hasattr(model, "feature_names_in_") or not hasattr(model, "n_features_in_")
    return frame if has_names else frame.to_numpy()


def log_hazards(
    trees: Mapping[str, SoftTree], samples: Mapping[str, Sample], splits: Sequence[SurvivalData]
) -> Tensor:
    """Log cumulative hazard of rows and causes, weighted by events, at the median event time, (R, J, M)."""
    medians = torch.tensor([median_event_time(data) for data in splits], dtype=torch.float64).log()
    each = [
        log_hazard_targets(
            tree, samples[name], medians.repeat_interleave(torch.tensor(samples[name].x.counts))
        )
        for name, tree in trees.items()
    ]
    return torch.stack(each, dim=1)


def regression_targets(
    regressions: Mapping[str, SoftTree], samples: Mapping[str, Sample], splits: Sequence[SurvivalData]
) -> Tensor:
    """Targets of distilled gates, (R, J, M): predicted log time for one event, or :func:`log_hazards`."""
    if len(regressions) == 1:
        ((name, regression),) = regressions.items()
        return predicted_log_time(regression, samples[name])[:, None]
    return log_hazards(regressions, samples, splits)
