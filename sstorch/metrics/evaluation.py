"""A table of metrics of one model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.auc import cumulative_dynamic_auc, mean_cumulative_dynamic_auc
from sstorch.metrics.calibration import integrated_calibration_index, one_calibration
from sstorch.metrics.checks import FloatArray, check_horizon
from sstorch.metrics.concordance import concordance_harrell, concordance_uno
from sstorch.metrics.curves import median_survival_time, survival_at
from sstorch.metrics.d_calibration import d_calibration
from sstorch.metrics.integrated_brier import integrated_brier_score, scaled_integrated_brier_score
from sstorch.metrics.ipcw import count_floored
from sstorch.metrics.scored_rows import Curves, PredictsSurvival, Rows, ScoredRows
from sstorch.metrics.time_error import mean_absolute_error_margin, mean_absolute_error_pseudo, rmst_error


@dataclass(frozen=True)
class Metric:
    """A metric of scored rows.

    Attributes:
        value: from the rows and tau, which None leaves to the rows.
        higher_is_better: direction; None where neither is, as of a p-value.
        floored: whether weights 1 / G enter that a floor may hold down.
    """

    value: Callable[[ScoredRows, float | None], float]
    higher_is_better: bool | None
    floored: bool = False


def _ibs(convention: str) -> Callable[[ScoredRows, float | None], float]:
    def value(rows: ScoredRows, _: float | None) -> float:
        curves, times = rows.on_grid(convention)
        return integrated_brier_score(
            rows.time, rows.event, curves, times, train=rows.train, convention=convention
        )

    return value


def _scaled_ibs(rows: ScoredRows, _: float | None) -> float:
    curves, times = rows.on_grid("graf")
    return scaled_integrated_brier_score(rows.time, rows.event, curves, times, train=rows.train)


def _c_harrell(rows: ScoredRows, tau: float | None) -> float:
    return concordance_harrell(rows.time, rows.event, rows.survival, rows.times, tau=tau)


def _c_uno(rows: ScoredRows, tau: float | None) -> float:
    return concordance_uno(rows.time, rows.event, rows.survival, rows.times, train=rows.train, tau=tau)


def _cd_auc(rows: ScoredRows, tau: float | None) -> float:
    curves, times = rows.on_grid("osst")
    first = rows.time[rows.event].min(initial=np.inf)
    inside = (times >= first) & (times < rows.time.max())
    if tau is not None:
        inside &= times <= tau
    if not inside.any():
        raise DataError("times: no time has both cases and controls, so that AUC(t) is nowhere defined.")
    auc = cumulative_dynamic_auc(rows.time, rows.event, curves[:, inside], times[inside], train=rows.train)
    return mean_cumulative_dynamic_auc(auc, times[inside], rows.time, rows.event)


def _d_calibration(rows: ScoredRows, _: float | None) -> float:
    return d_calibration(rows.time, rows.event, rows.survival, rows.times).p_value


def _at_horizon(rows: ScoredRows, tau: float | None) -> tuple[FloatArray, float]:
    """The predictions at one time: the median event time up to tau."""
    events = rows.time[rows.event & (rows.time <= (np.inf if tau is None else tau))]
    if events.size == 0:
        raise DataError("event: no test row has an event, so that there is no median event time to look at.")
    t = float(np.median(events))
    predicted = survival_at(rows.survival, rows.times, np.full(rows.time.size, t))
    return np.clip(predicted, 0.0, 1.0), t


def _one_calibration(rows: ScoredRows, tau: float | None) -> float:
    predicted, t = _at_horizon(rows, tau)
    return one_calibration(rows.time, rows.event, predicted, t=t).p_value


def _ici(rows: ScoredRows, tau: float | None) -> float:
    predicted, t = _at_horizon(rows, tau)
    return integrated_calibration_index(rows.time, rows.event, predicted, t=t)


def _mae_margin(rows: ScoredRows, _: float | None) -> float:
    predicted = median_survival_time(rows.survival, rows.times, beyond="line")
    return mean_absolute_error_margin(rows.time, rows.event, predicted, train=rows.train)


def _mae_pseudo(rows: ScoredRows, _: float | None) -> float:
    predicted = median_survival_time(rows.survival, rows.times, beyond="line")
    return mean_absolute_error_pseudo(rows.time, rows.event, predicted, train=rows.train)


def _rmst_error(rows: ScoredRows, tau: float | None) -> float:
    horizon = tau
    if horizon is None:
        horizon = min(float(rows.time[rows.event].max(initial=0.0)), float(rows.times[-1]))
    return rmst_error(rows.time, rows.event, rows.survival, rows.times, train=rows.train, tau=horizon)


METRICS = {
    "c_harrell": Metric(_c_harrell, True),
    "c_uno": Metric(_c_uno, True, floored=True),
    "cd_auc": Metric(_cd_auc, True, floored=True),
    "ibs_graf": Metric(_ibs("graf"), False, floored=True),
    "ibs_sksurv": Metric(_ibs("sksurv"), False),
    "ibs_surtree": Metric(_ibs("surtree"), True),
    "ibs_osst": Metric(_ibs("osst"), False),
    "scaled_ibs_graf": Metric(_scaled_ibs, True, floored=True),
    "d_calibration_p": Metric(_d_calibration, None),
    "one_calibration_p": Metric(_one_calibration, None),
    "ici": Metric(_ici, False),
    "mae_margin": Metric(_mae_margin, False),
    "mae_pseudo": Metric(_mae_pseudo, False),
    "rmst_error": Metric(_rmst_error, False, floored=True),
}


def evaluate(
    model: PredictsSurvival | Curves,
    train: Rows,
    test: Rows,
    *,
    metrics: Iterable[str] | None = None,
    tau: float | None = None,
) -> pd.DataFrame:
    """Score a model by name.

    The names: "c_harrell" and "c_uno" (time-dependent concordance), "cd_auc" (mean cumulative/dynamic AUC),
    "ibs_graf", "ibs_sksurv", "ibs_surtree", "ibs_osst" (integrated Brier score), "scaled_ibs_graf" (1 - IBS
    over that of Kaplan-Meier), "d_calibration_p" and "one_calibration_p" (p-values; 1-calibration at the
    median test event time), "ici" (integrated calibration index there), "mae_margin" and "mae_pseudo" (of
    the predicted medians, curves that end above 1/2 prolonged along a line), "rmst_error" (up to tau, or the
    last test event), and "negative_log_likelihood" for an estimator with ``log_likelihood(X, y)``.

    Args:
        model: a fitted estimator with ``predict_survival_function(X, times)`` -> (n, n_times), which is asked
            once, at the grids of all conventions; or the pair (survival, times) of curves of the test rows,
            which every metric then reads on that grid.
        train: training rows, from which the censoring weights and Kaplan-Meier come: `SurvivalData` or
            (X, (time, event)).
        test: test rows, likewise. Sample weights that `SurvivalData` holds are not used.
        metrics: names; None takes all, "negative_log_likelihood" where the estimator has it.
        tau: truncation of the concordances, of the AUC, and of the horizons; None for none.

    Returns:
        A row a metric, indexed by its name: value; higher_is_better (True, False, or None for p-values);
        n_floored, how many test rows have a weight 1 / G that the floor under G holds down.

    Raises:
        DataError: rows, curves or model cannot be used, or a metric is not defined for these rows; the
            message begins with its name.
        ConfigError: an unknown name, or tau is no time > 0.

    Examples:
        >>> survival = [[0.4, 0.1, 0.0], [0.8, 0.5, 0.2], [0.9, 0.7, 0.6]]
        >>> rows = (None, ([1.0, 2.0, 3.0], [1, 1, 0]))
        >>> evaluate((survival, [1.0, 2.0, 3.0]), rows, rows, metrics=["c_harrell", "ibs_graf"])["value"]
        metric
        c_harrell    1.000000
        ibs_graf     0.070741
        Name: value, dtype: float64
    """
    likelihood = getattr(model, "log_likelihood", None)
    known = [*METRICS, "negative_log_likelihood"]
    names = check_names(known if metrics is None else metrics, known)
    if metrics is None and likelihood is None:
        names.remove("negative_log_likelihood")
    if tau is not None:
        check_horizon(tau, "tau")
    rows = ScoredRows.of(model, train, test)
    n_floored = count_floored(rows.time, train=rows.train)
    table = []
    for name in names:
        if name in METRICS:
            metric = METRICS[name]
            value = score(name, rows, tau)
            table.append((name, value, metric.higher_is_better, n_floored if metric.floored else 0))
        elif likelihood is None:
            raise DataError(
                f"{name}: expected an estimator with log_likelihood(X, y); got {type(model).__name__}."
            )
        else:
            X = test[0] if isinstance(test, tuple) else test.frame
            table.append((name, -float(likelihood(X, (rows.time, rows.event))), False, 0))
    frame = pd.DataFrame(table, columns=["metric", "value", "higher_is_better", "n_floored"])
    frame["higher_is_better"] = frame["higher_is_better"].astype(object)
    return frame.set_index("metric")


def score(name: str, rows: ScoredRows, tau: float | None) -> float:
    """One metric of scored rows.

    Raises:
        DataError: it is not defined for these rows; the message begins with its name.
    """
    try:
        return METRICS[name].value(rows, tau)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def check_names(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names of metrics, in the given order.

    Raises:
        ConfigError: an unknown name, a name twice, or none.
    """
    given, there = ([names] if isinstance(names, str) else list(names)), list(known)
    unknown = [name for name in given if name not in there]
    if unknown:
        raise ConfigError(
            f"metrics: {unknown[0]!r} is unknown; the known ones are {', '.join(map(repr, there))}."
        )
    if not given or len(set(given)) < len(given):
        raise ConfigError(f"metrics: expected one or more different names; got {given!r}.")
    return given
