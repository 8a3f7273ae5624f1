"""Likelihood-ratio tests against lifelines."""

import pandas as pd
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
    X: pd.DataFrame = gbsg2.frame[LARGE].astype(float)
    smaller, larger = (free("weibull").fit(X[names], gbsg2.y) for names in (SMALL, LARGE))
    with pytest.raises(DataError, match="exchange them"):
        likelihood_ratio_test(larger, smaller, X, gbsg2.y)
    twice = X.assign(years=X["age"] * 2)[["age", "years"]]
    with pytest.raises(DataError, match="more estimable coefficients than smaller, which has 3, got 3"):
        likelihood_ratio_test(smaller, free("weibull").fit(twice, gbsg2.y), X.join(twice["years"]), gbsg2.y)
    with pytest.raises(ConfigError, match="without penalties"):
        likelihood_ratio_test(smaller, SurvivalRegression("weibull").fit(X, gbsg2.y), X, gbsg2.y)
    half = range(343)
    with pytest.raises(DataError, match="not fitted to these rows"):
        likelihood_ratio_test(smaller, larger, X.iloc[half], gbsg2.y[half])
    with pytest.raises(DataError, match="counts of rows"):
        likelihood_ratio_test(smaller, larger, X, gbsg2.y, X["age"] / 10)
    age = free("weibull").fit(X[["pnodes"]], gbsg2.y)
    noise = X.assign(a=X["age"] % 5, b=X["age"] % 7)[["a", "b"]]
    other = free("weibull").fit(noise, gbsg2.y)
    with pytest.raises(DataError, match="not nested"):
        likelihood_ratio_test(age, other, X.join(noise), gbsg2.y)
