"""Likelihood-ratio tests against lifelines."""

import pytest
from lifelines import LogLogisticAFTFitter, WeibullAFTFitter
from scipy.stats import chi2

from sstorch import Columns, Penalties, SurvivalData, SurvivalRegression
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference import likelihood_ratio_test

SMALL, LARGE = ["age"], ["age", "pnodes", "tsize"]


def free(leaf: str) -> SurvivalRegression:
    return SurvivalRegression(
        leaf, penalties=Penalties(ridge=0, roughness=0), columns=Columns(numeric="linear")
    )


@pytest.mark.parametrize(
    ("leaf", "peer"), [("weibull", WeibullAFTFitter), ("log_logistic", LogLogisticAFTFitter)]
)
def test_statistic_is_that_of_lifelines(leaf: str, peer: type, gbsg2: SurvivalData) -> None:
    X = gbsg2.frame[LARGE].astype(float)
    smaller, larger = (free(leaf).fit(X[names], gbsg2.y) for names in (SMALL, LARGE))
    found = likelihood_ratio_test(smaller, larger, X, gbsg2.y)
    table = X.assign(time=gbsg2.time, event=gbsg2.event)
    fits = [peer().fit(table[[*names, "time", "event"]], "time", "event") for names in (SMALL, LARGE)]
    expected = 2 * (fits[1].log_likelihood_ - fits[0].log_likelihood_)
    assert found["statistic"] == pytest.approx(expected, rel=1e-5)
    assert found["df"] == 2
    assert found["p"] == pytest.approx(chi2.sf(expected, 2), rel=1e-3)


def test_what_cannot_be_compared(gbsg2: SurvivalData) -> None:
    X, y = gbsg2.frame[LARGE].astype(float), gbsg2.y
    X = X.assign(years=2 * X["age"], a=X["age"] % 5, b=X["age"] % 7)
    smaller, larger, twice, nodes, noise = (
        free("weibull").fit(X[names], y) for names in (SMALL, LARGE, ["age", "years"], ["pnodes"], ["a", "b"])
    )
    penalised, half = SurvivalRegression("weibull").fit(X[LARGE], y), range(343)
    for error, message, models, rows in (
        (DataError, "exchange them", (larger, smaller), (X, y)),
        (DataError, "estimable coefficients than smaller, which has 3, got 3", (smaller, twice), (X, y)),
        (ConfigError, "without penalties", (smaller, penalised), (X, y)),
        (DataError, "not fitted to these rows", (smaller, larger), (X.iloc[half], y[half])),
        (DataError, "counts of rows", (smaller, larger), (X, y, X["age"] / 10)),
        (DataError, "not nested", (nodes, noise), (X, y)),
    ):
        with pytest.raises(error, match=message):
            likelihood_ratio_test(*models, *rows)
