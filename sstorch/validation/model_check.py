"""Checks of the assumptions of a fitted regression."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_share
from sstorch.data import SurvivalData
from sstorch.data.coded import CODED_LEVELS
from sstorch.exceptions import ConfigError
from sstorch.inference import HazardRows, coefficients
from sstorch.inference.model import Refitted, covariance_of
from sstorch.threads import torch_threads
from sstorch.validation.residuals import dfbeta, of_events, row_labels
from sstorch.validation.score_tests import ScoreTest, episodes, likelihood_ratio

Transform = Literal["rank", "log"]
# Periods of the test of effects in time, risk groups of the test of calibration, events of each at least.
_PERIODS, _GROUPS, _EVENTS = 10, 10, 10
# Values of a column from which its curvature is tested.
_DISTINCT = 5
# Change of an estimate, in its standard errors, above which a row is reported.
_INFLUENCE = 0.5
_REMEDIES = {
    "time": "let shapes depend on covariates, such as Weibull(ancillary='linear'), or try another family",
    "curve": "give the column a curve, as Columns(numeric='auto') does",
    "calibration": "try another family, curves or interactions",
}


@dataclass(frozen=True)
class ModelCheck:
    """Result of :func:`check`: tests and tables; ``print`` shows the findings.

    Attributes:
        tests: indexed by ``cause``, ``check`` (``"time"``, ``"curve"``, ``"calibration"``) and ``term``:
            ``statistic``, ``df`` and ``p``. The term ``"all"`` is the joint test.
        risk_groups: by ``cause`` and ``group``, in order of predicted risk: ``rows``, weighted ``events``,
            ``expected`` events and their ``ratio``.
        influence: for each contrast the label of the most influential row or subject, and the ``change`` in
            standard errors by its removal.
        effects: by ``cause``, ``feature`` and ``period``, between quantiles of the event times: ``time``, the
            middle of its events; ``change``, a one-step estimate of the effect in this period minus the
            fitted effect, for a number per standard deviation; and its ``standard error``.
        level: level of the tests.
        can_be_strata: categorical covariates with few enough categories.
    """

    tests: pd.DataFrame
    risk_groups: pd.DataFrame
    influence: pd.DataFrame
    effects: pd.DataFrame
    level: float
    can_be_strata: tuple[str, ...] = ()

    @property
    def findings(self) -> list[str]:
        """Findings, one sentence each, with a remedy; empty if there are none.

        Terms are reported if their p-value times the number of terms is below the level (Bonferroni).
        """
        found, several = [], self.tests.index.get_level_values("cause").nunique() > 1
        for (cause, kind), table in self.tests.groupby(level=["cause", "check"], sort=False):
            part = table.droplevel(["cause", "check"])
            of_cause = f" of {cause}" if several else ""
            terms = part.drop("all", errors="ignore")
            guilty = [str(name) for name in terms.index[terms["p"] * len(terms) < self.level]]
            p_values = {str(term): float(p) for term, p in part["p"].items()}
            whole = p_values.get("all", np.nan)
            text, remedy = "", _REMEDIES[str(kind)]
            if kind == "calibration" and whole < self.level:
                text = f"Events{of_cause} differ from the expected number by predicted risk ({_p(whole)})"
            elif kind != "calibration" and guilty:
                what = "change with time" if kind == "time" else "have a shape that the model lacks"
                names = ", ".join(f"{name} ({_p(p_values[name])})" for name in guilty)
                text = f"Effects{of_cause} that {what}: {names}"
                if kind == "time" and (strata := [name for name in guilty if name in self.can_be_strata]):
                    most = min(strata, key=p_values.__getitem__)
                    remedy = f"give each category a separate baseline, Columns(strata={most!r}), {remedy}"
            elif kind == "time" and whole < self.level:
                text = f"Effects{of_cause} change with time, taken together ({_p(whole)})"
            if text:
                found.append(f"{text}: {remedy}.")
        large = self.influence[self.influence["change"].abs() > _INFLUENCE]
        for label, own in large.groupby("row", sort=False):
            names = ", ".join(
                f"{each.term} {each.contrast} by {each.change:+.1f}"
                for each in own.reset_index().itertuples(index=False)
            )
            found.append(f"Row {label} moves estimates, in standard errors ({names}): look at its values.")
        return found

    def __str__(self) -> str:
        found = self.findings or ["No check shows a fault of the model at this level."]
        tests = self.tests.copy()
        tests["p"] = [_p(value) for value in tests["p"]]
        tests["statistic"] = tests["statistic"].round(2)
        return "\n".join([*found, "", tests.to_string()])


def _p(value: float) -> str:
    return "p < .001" if value < 0.001 else "no test" if np.isnan(value) else f"p = {value:.3f}"


@torch_threads(1)  # a second one gains nothing on small matrices
def check(
    model: Refitted,
    X: object,
    y: object,
    sample_weight: object = None,
    *,
    transform: Transform = "rank",
    level: float = 0.05,
) -> ModelCheck:
    """Test the assumptions of a fitted regression on its training rows.

    1. Effects in time, as R's ``cox.zph`` but for every family: rows are cut at quantiles of the event
       times, and each term times a function g of time is tested for an effect on the linear predictor of
       the hazard.
    2. Curvature: quadratic and cubic polynomials of the ranks of each numeric column with at least five
       values.
    3. Calibration: the same polynomials of the ranks of predicted risk; a table has groups of equal size. 4.
       Influence: largest dfbeta of each contrast, for start-stop rows summed by subject.

    The first three test features that the model lacks: time by score tests, curvature and calibration by
    likelihood ratios. They account for the estimated coefficients and treat penalties (priors of the
    coefficients) as fixed. With competing causes each cause is checked separately. A missing number has the
    middle rank.

    Args:
        model: fitted regression with a covariance of its coefficients.
        X: training rows.
        y: outcome of the rows, exact or right-censored, with entry if the training outcome had it.
        sample_weight: training weights; only ratios matter.
        transform: g, the ``"rank"`` or ``"log"`` of time.
        level: level of the reported tests.

    Raises:
        ConfigError: the model has groups or no covariance, or an argument is out of range.
        DataError: times are intervals, or the rows are not the training rows.

    References:
        Grambsch and Therneau (1994), "Proportional hazards tests and diagnostics based on weighted
        residuals", Biometrika 81, 515-526; Rao (1948), Mathematical Proceedings of the Cambridge
        Philosophical Society 44, 50-57, on score tests.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> regression = SurvivalRegression("weibull").fit(data.frame, data.y)
    >>> found = check(regression, data.frame, data.y)
    >>> found.tests.loc["event"].loc["calibration"].round(2)
          statistic  df     p
    term
    all        2.87   2  0.24
    """
    check_share(level, "level")
    check_choice(transform, "transform", get_args(Transform))
    covariance = covariance_of(model)
    if any(hazard.n_groups > 1 for hazard in covariance.hazards.values()):
        raise ConfigError("check() is for regressions: a model with groups has validate_groups()")
    data = model._scored(X, y, sample_weight)
    data.refuse_intervals("check")
    labels, table_of_errors = row_labels(X, len(data)), coefficients(model)["standard error"]
    counted = data.sample_weight > 0  # the others would count in ranks and quantiles
    data, labels = data.subset(counted), labels[counted]
    tests, groups, influence, effects = [], [], [], []
    for rows in HazardRows.by_cause(model, data):
        rows.check_training()
        in_time, table = _in_time(model, rows, transform)
        tests += [(rows.cause, "time", *each) for each in in_time]
        effects.append(pd.concat({rows.cause: table}, names=["cause"]))
        tests += [(rows.cause, "curve", *each) for each in _curvature(rows, data)]
        outcome, table = _calibration(rows, data)
        tests.append((rows.cause, "calibration", "all", *outcome))
        groups.append(pd.concat({rows.cause: table}, names=["cause"]))
        errors = table_of_errors.loc[rows.cause] if len(covariance.hazards) > 1 else table_of_errors
        influence.append(_influence(model, errors, rows, data, labels))
    names = ["cause", "check", "term", "statistic", "df", "p"]
    return ModelCheck(
        pd.DataFrame(tests, columns=names).set_index(names[:3]).sort_index(),
        pd.concat(groups),
        pd.concat(influence),
        pd.concat(effects),
        level,
        _can_be_strata(model, covariance.terms),
    )


def _can_be_strata(model: Refitted, terms: Collection[str]) -> tuple[str, ...]:
    """Categorical covariates that can be strata; none where the model has some already."""
    preprocessor = model._tree.preprocessor
    if preprocessor.strata is not None:
        return ()
    words = preprocessor.schema.categories
    return tuple(name for name in terms if len(words.get(name, ())) in range(2, CODED_LEVELS + 1))


def _in_time(
    model: Refitted, rows: HazardRows, transform: Transform
) -> tuple[list[tuple[str, float, int, float]], pd.DataFrame]:
    """Tests of each term times a function of time, and of all of them; changes of effects by period."""
    log_time, event = rows.sample.log_time[0], rows.sample.event[0] > 0
    count = min(_PERIODS, max(2, int(event.sum()) // _EVENTS))
    shares = torch.arange(1, count) / count
    cuts = torch.quantile(log_time[event], shares.double()).unique()
    parts, row, period = episodes(rows, cuts)
    moment = torch.arange(len(cuts) + 1).double()
    if transform == "log":
        of_event = torch.bucketize(log_time[event], cuts)
        sums = torch.zeros_like(moment).index_add_(0, of_event, log_time[event])
        moment = sums / torch.bincount(of_event, minlength=len(moment)).clamp(min=1)
    moment = moment - moment.mean()
    own = rows.module.leaf_parameters().features(rows.sample.x.matrices[0])
    centred = own - own.mean(0)
    features = model._tree.preprocessor.leaf_features
    columns: list[Tensor] = []
    shown: dict[str, Tensor] = {}
    places: dict[str, list[int]] = {}
    for term, facts in covariance_of(model).terms.items():
        plain = [place for place in facts.places if not features[place].curved]
        chosen = plain or list(facts.places)
        places[term] = list(range(len(columns), len(columns) + len(chosen)))
        columns += [centred[row, place] * moment[period] for place in chosen]
        if not term.count(":") and plain:
            unit = [1.0 if len(plain) > 1 else float(own[:, place].std()) or 1.0 for place in plain]
            shown |= {features[j].name: centred[row, j] / u for j, u in zip(plain, unit, strict=True)}
    test = ScoreTest.of(parts, torch.stack(columns, 1))
    tests = [*((term, *test.test(own)) for term, own in places.items()), ("all", *test.test())]
    n_periods = len(cuts) + 1
    inside = torch.nn.functional.one_hot(period, n_periods).to(centred.dtype)
    by_period = torch.cat([inside[:, :0], *(values[:, None] * inside for values in shown.values())], 1)
    change, error = ScoreTest.of(parts, by_period).steps
    of_event = torch.bucketize(log_time[event], cuts)
    events = [log_time[event][of_event == k] for k in range(n_periods)]
    middle = [float(each.median()) if len(each) else np.nan for each in events]  # ties can leave one empty
    time = np.exp(np.array(middle) + float(rows.module.log_time_scale))
    index = pd.MultiIndex.from_product([list(shown), range(1, n_periods + 1)], names=["feature", "period"])
    values = {"time": np.tile(time, len(shown)), "change": change.numpy(), "standard error": error.numpy()}
    return tests, pd.DataFrame(values, index=index)


def _curvature(rows: HazardRows, data: SurvivalData) -> list[tuple[str, float, int, float]]:
    """Tests of polynomials of the ranks of numeric columns."""
    found = []
    for name in data.frame.columns:
        values = data.frame[name]
        if isinstance(values.dtype, pd.CategoricalDtype) or values.nunique() < _DISTINCT:
            continue
        added = _bends(values.to_numpy())
        found.append((str(name), *likelihood_ratio(rows, added)))
    return found


def _bends(values: FloatArray) -> Tensor:
    """Legendre polynomials of degree two and three of middle ranks in (-1, 1), 0 if missing, (n, 2)."""
    known = ~np.isnan(values)
    rank = np.zeros(len(values))
    rank[known] = (2 * rankdata(values[known]) - 1) / known.sum() - 1
    return torch.as_tensor(np.stack([1.5 * rank**2 - 0.5, 2.5 * rank**3 - 1.5 * rank], 1))


def _calibration(rows: HazardRows, data: SurvivalData) -> tuple[tuple[float, int, float], pd.DataFrame]:
    """Test of curvature in predicted risk, and observed and expected events of groups of it."""
    sample = rows.sample
    events = int((sample.event[0] > 0).sum())
    with torch.no_grad():
        linear, shape = rows.module.leaf_parameters().at_rows(sample.x.matrices[0], rows.leaf)
        at = sample.log_time[0][sample.event[0] > 0].median()
        risk = rows.module.family.cumulative_hazard(at.expand(len(linear)), linear, shape)
    count = min(_GROUPS, max(2, events // _EVENTS))
    group = np.minimum((rankdata(risk.numpy()) - 0.5) * count / len(risk), count - 1).astype(int)
    weight, expected = data.sample_weight, of_events(rows, data, "cox_snell")
    table = pd.DataFrame(
        {
            "rows": np.ones(len(group)),
            "events": weight * sample.event[0].numpy(),
            "expected": weight * expected,
        }
    )
    table = table.groupby(pd.Index(group + 1, name="group")).sum()
    table["rows"] = table["rows"].astype(int)
    table["ratio"] = table["events"] / table["expected"]
    return likelihood_ratio(rows, _bends(risk.numpy())), table


def _influence(
    model: Refitted, errors: pd.Series, rows: HazardRows, data: SurvivalData, labels: pd.Index
) -> pd.DataFrame:
    """By contrast the row, or the subject by its first row, of the largest change in standard errors."""
    change = next(iter(dfbeta(model, rows).values()))
    if data.subject is not None:
        change = change.groupby(data.subject).sum()
        labels = labels[np.unique(data.subject, return_index=True)[1]]
    found = []
    for key in change.columns:
        term, contrast = (str(part) for part in key)
        scaled = (change[key] / errors.loc[key]).to_numpy()
        if np.isfinite(scaled).all():
            most = int(np.abs(scaled).argmax())
            found.append((rows.cause, term, contrast, labels[most], scaled[most]))
    names = ["cause", "term", "contrast", "row", "change"]
    return pd.DataFrame(found, columns=names).set_index(names[:3]).sort_index()
