"""Arguments of the same rows: their labels agree or are refused, and missing labels are named."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sstorch import OptimalSurvivalTree, OptimalTreeClassifier, Surv, SurvivalData, SurvivalRegression
from sstorch.checks import check_same_order
from sstorch.exact import Classification
from sstorch.exceptions import DataError
from sstorch.inference import with_sandwich
from sstorch.metrics import concordance_of_groups, gray_test, logrank_test
from sstorch.metrics.fairness import leaf_groups
from sstorch.validation import contrast, validate

N = 60
RNG = np.random.default_rng(0)
LABELS = [f"p{i}" for i in range(N)]
X = pd.DataFrame({"x": RNG.normal(size=N), "z": RNG.normal(size=N)}, index=LABELS)
TIME = pd.Series(RNG.exponential(np.exp(-X["x"])) + 0.01, index=LABELS)
EVENT = pd.Series(RNG.random(N) < 0.7, index=LABELS)
Y = Surv(TIME, EVENT)
CAUSES = Surv(TIME, EVENT * (1 + (np.arange(N) % 2)), causes=("a", "b"))
GROUP = np.array(["a", "b"])[RNG.integers(0, 2, N)]
ORDER = RNG.permutation(N)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {"regression": SurvivalRegression("weibull").fit(X, Y), "exact": OptimalSurvivalTree(1).fit(X, Y)}


def contradicting(values: Any) -> dict[str, pd.Series]:
    """The values by row, with labels that contradict those of X."""
    given = pd.Series(np.asarray(values), index=LABELS)
    return {
        "the same row labels in a different order": given.iloc[ORDER],
        "row labels that agree in part, 'p0' is not in both": given.set_axis([*LABELS[1:], "new"]),
        "row labels that agree in part, 'p59' is not in both": given.set_axis([LABELS[0], *LABELS[:-1]]),
    }


def by_row(models: dict[str, Any]) -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """What takes an argument by row, with values that it accepts."""
    regression = models["regression"]
    calls: dict[str, tuple[Any, Callable[[Any], object]]] = {
        "weight": (np.ones(N), lambda v: regression.score(X, Y, v)),
        "weight of y": (np.ones(N), lambda v: Y.weighted(v)),
        "entry": (np.zeros(N), lambda v: Surv(TIME, EVENT, entry=v)),
        "id": (np.arange(N), lambda v: Surv(TIME, EVENT, id=v)),
        "upper": (TIME + 1, lambda v: Surv.interval(TIME, v)),
        "sensitive": (GROUP, lambda v: SurvivalData(X, Y, sensitive=v)),
        "sensitive of classes": (GROUP, lambda v: OptimalTreeClassifier(1).fit(X, EVENT, sensitive=v)),
        "cluster": (np.arange(N) % 9, lambda v: with_sandwich(regression, X, Y, cluster=v)),
        "group": (GROUP, lambda v: logrank_test(Y, v)),
        "strata": (GROUP, lambda v: logrank_test((TIME, EVENT), np.arange(N) % 2, strata=v)),
        "group of causes": (GROUP, lambda v: gray_test(CAUSES, v)),
        "training group": (GROUP, lambda v: concordance_of_groups(Y, GROUP, train=(Y, v))),
        "leaf": (np.arange(N) % 2, lambda v: leaf_groups(v, pd.Series(np.arange(N) % 2, LABELS), 2, 2)),
        "validation": (np.ones(N), lambda v: validate(regression, X, Y, horizon=0.5, sample_weight=v)),
        "weight of classes": (np.ones(N), lambda v: Classification(EVENT, sample_weight=v)),
        "one side of a contrast": (np.arange(N), lambda v: contrast(regression, X, X.set_axis(v.index), [1])),
    }
    for name, model in models.items():
        calls[f"after of {name}"] = (np.zeros(N), lambda v, m=model: m.predict_quantile(X, after=v))
    return calls


def test_contradicting_labels_raise_everywhere(models: dict[str, Any]) -> None:
    # At the parent after=, clusters, groups of training rows, weights of validations and tasks, and a side of
    # a contrast were taken by position, and so were labels that agree in part everywhere.
    for name, (values, call) in by_row(models).items():
        call(pd.Series(np.asarray(values), index=LABELS))
        for said, given in contradicting(values).items():
            with pytest.raises(DataError) as caught:
                call(given)
            assert said in str(caught.value) or "row labels" in str(caught.value), name


def test_an_index_that_counts_rows_is_no_label() -> None:
    counted = pd.Series(np.arange(4))
    check_same_order(X=pd.Series(np.arange(4), [7, 1, 2, 9]), y=counted)  # of other rows: by position
    check_same_order(X=counted, y=np.arange(4), weight=None)
    with pytest.raises(DataError, match="X and y: the same row labels in a different order"):
        check_same_order(X=counted, y=pd.Series(np.arange(4), [3, 1, 2, 0]))
    y, w = (pd.Series(np.arange(4), list(labels)) for labels in ("abcd", "abce"))
    with pytest.raises(DataError, match="y and w: row labels that agree in part"):  # beside the first one too
        check_same_order(X=counted, y=y, w=w)
    check_same_order(X=pd.Series(np.arange(3), [1, 1, 2]), y=pd.Series(np.arange(3), [1, 1, 2]))


MISSING = np.isin(np.arange(N), [3, 7])
TEXT = np.where(MISSING, None, GROUP.astype(object))
FORMS = {
    "None": TEXT,
    "blank": np.where(MISSING, " ", GROUP),
    "text NA": np.where(MISSING, "na ", GROUP),
    "category": pd.Categorical(TEXT),
    "masked": np.ma.masked_array(1 * (GROUP == "a"), mask=MISSING),
    "polars categories": pl.Series(list(TEXT), dtype=pl.Categorical),
}


@pytest.mark.parametrize("form", FORMS)
def test_missing_labels_are_named_by_row(form: str, models: dict[str, Any]) -> None:
    values: Any = FORMS[form]
    calls: list[Callable[[], object]] = [
        lambda: logrank_test(Y, values),  # a group of its own: p .652, of the known rows .521
        lambda: logrank_test(Y, np.arange(N) % 2, strata=values),
        lambda: gray_test(CAUSES, values),
        lambda: concordance_of_groups(Y, values, train=(Y, GROUP)),
        lambda: with_sandwich(models["regression"], X, Y, cluster=values),
        lambda: Surv(TIME, EVENT, id=values),
        lambda: SurvivalData(X, Y, sensitive=values),
        lambda: Surv(TIME.to_numpy(), values, event_value="a"),
        lambda: Classification(values),
    ]
    for call in calls:
        with pytest.raises(DataError, match=r"is missing in 2 rows \((0-based pos|index lab).* p?3, p?7\)"):
            call()


def test_missing_numbers_by_row_are_named(models: dict[str, Any]) -> None:
    values = pd.Series([None if gone else 1.0 for gone in MISSING], dtype="Float64", index=LABELS)
    with pytest.raises(DataError, match="after must be finite and >= 0 in 2 rows"):
        models["regression"].predict_quantile(X, after=values)  # float() argument must be a string
    with pytest.raises(DataError, match="in 2 rows"):
        Surv(TIME + 2, EVENT, entry=np.ma.masked_array(np.ones(N), mask=MISSING))  # was taken as 1
