"""Formulas: the columns, outcome and encodings they give, and errors that name the term."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lifelines import WeibullAFTFitter

from sstorch import Columns, Penalties, Surv, SurvivalData, SurvivalRegression, model_frame
from sstorch.exceptions import ConfigError, DataError, SstorchError


@pytest.fixture(scope="module")
def frame(gbsg2: SurvivalData) -> pd.DataFrame:
    more = {"days": gbsg2.time, "died": gbsg2.event, "status": np.where(gbsg2.event, 2, 1)}
    more |= {"start": 0.2 * gbsg2.time, "never": np.inf, "tumour size": gbsg2.frame["tsize"]}
    more |= {"row number": gbsg2.frame.index}
    return gbsg2.frame.assign(**more, **{"age.years": gbsg2.frame["age"]})


@pytest.mark.parametrize(
    ("terms", "names", "columns"),
    [
        ("age + tgrade", ["age", "tgrade"], Columns("linear")),
        ("tgrade + s(age)", ["tgrade", "age"], Columns({"age": "smooth(5)"})),
        (
            "s(age, 6) + spline(tsize, df=3)",
            ["age", "tsize"],
            Columns({"age": "smooth(6)", "tsize": "spline(3)"}),
        ),
        ("age + piecewise(age, 8)", ["age"], Columns({"age": "piecewise(8)"})),
        ("age * horTh", ["age", "horTh"], Columns("linear", interactions=(("age", "horTh"),))),
        (
            "s(age) + C(pnodes) + s(age):C(pnodes) - s(age):C(pnodes) + age:pnodes",
            ["age", "pnodes"],
            Columns({"age": "smooth(5)"}, interactions=(("age", "pnodes"),)),
        ),
        ("(age + horTh + tsize)**2 - age:horTh", ["age", "horTh", "tsize"], None),
        ("age + strata(tgrade)", ["age", "tgrade"], Columns("linear", strata="tgrade")),
        ("age + offset(tsize)", ["age", "tsize"], Columns("linear", offset="tsize")),
        ("s(`tumour size`) + age.years", ["tumour size", "age.years"], Columns({"tumour size": "smooth(5)"})),
        (". - status - start - never - `tumour size` - `row number` - age.years", None, Columns("linear")),
    ],
)
def test_terms_become_columns_and_encodings(
    frame: pd.DataFrame, gbsg2: SurvivalData, terms: str, names: list[str] | None, columns: Columns | None
) -> None:
    X, y, found = model_frame(f"Surv(days, died) ~ {terms}", frame)
    assert list(X) == (gbsg2.feature_names if names is None else names)
    assert y.columns == {"time": "days", "event": "died"}
    if columns is None:
        columns = Columns("linear", interactions=(("age", "tsize"), ("horTh", "tsize")))
    assert found.get_params() == columns.get_params()


@pytest.mark.parametrize(
    ("left", "make"),
    [
        ("Surv(days)", lambda f: Surv(f.days)),
        ("Surv(days, died)", lambda f: Surv(f.days, f.died)),
        ("Surv(days, status == 2)", lambda f: Surv(f.days, f.died)),
        ("Surv(days, status, event_coding='1/2')", lambda f: Surv(f.days, f.died)),
        (
            "Surv(start, days, died, id=`row number`)",
            lambda f: Surv(f.days, f.died, entry=f.start, id=f.index),
        ),
        (
            "Surv(start, days, died, weight=tsize)",
            lambda f: Surv(f.days, f.died, entry=f.start, weight=f.tsize),
        ),
        (
            "Surv(days, status, causes=('relapse', 'death'))",
            lambda f: Surv(f.days, f.status, causes=("relapse", "death")),
        ),
    ],
)
def test_outcomes_of_the_left_side(
    frame: pd.DataFrame, left: str, make: Callable[[pd.DataFrame], Surv]
) -> None:
    y, expected = model_frame(f"{left} ~ age", frame).y, make(frame)
    assert repr(y) == repr(expected)
    for part in ("time", "event", "entry", "id", "weight", "cause", "lower", "upper"):
        np.testing.assert_array_equal(getattr(y, part), getattr(expected, part))


@pytest.mark.parametrize(
    ("formula", "kind", "message"),
    [
        ("Surv(days, died) ~ s(grad)", DataError, r"term s\(grad\): no column 'grad'.*mean 'tgrade'"),
        ("Surv(days, did) ~ age", DataError, r"term Surv\(days, did\): no column 'did'"),
        ("Surv(days, status) ~ age", DataError, "column 'status' is 2 in"),
        ("Surv(days, died) ~ s(tgrade)", ConfigError, r"term s\(tgrade\): .* has no curve: write tgrade"),
        (
            "Surv(days, died) ~ s(age, 'a')",
            ConfigError,
            r"term s\(age, 'a'\): the option must be at least 2",
        ),
        ("Surv(days, died) ~ s(age, 2)", ConfigError, r"term s\(age, 2\): df must be at least 3"),
        ("Surv(days, died) ~ s(age, 4, 5)", ConfigError, "too many arguments"),
        ("Surv(days, died) ~ s(age) + spline(age)", ConfigError, r"term spline\(age\): .* another curve"),
        ("Surv(days, died) ~ log(age)", ConfigError, r"term log\(age\): .* a column of the frame first"),
        ("Surv(days, died) ~ I(age^2)", ConfigError, r"term I\(age \^ 2\): "),
        ("Surv(days, died) ~ age:horTh", ConfigError, r"term age:horTh: .*write age \* horTh"),
        ("Surv(days, died) ~ s(age) * horTh", ConfigError, r"term s\(age\):horTh: .* write a:b in addition"),
        ("Surv(days, died) ~ (age + horTh + tsize)**3", ConfigError, "term age:horTh:tsize: products"),
        ("Surv(days, died) ~ 2:age", ConfigError, "term 2:age: "),
        ("Surv(days, died) ~ strata(horTh) + strata(tgrade)", ConfigError, "a model has one strata"),
        ("Surv(days, died) ~ age - 1", ConfigError, "drops the intercept"),
        ("Surv(days, died) ~ 1", ConfigError, "has no columns"),
        ("Surv(days, died + 1) ~ age", ConfigError, r"died \+ 1 is no column"),
        ("Surv(days, died, dead=1) ~ age", ConfigError, "takes no argument 'dead'"),
        ("days ~ age", ConfigError, r"term days: the left side must be Surv"),
        ("Surv(days, died) + Surv(days) ~ age", ConfigError, "one outcome on the left"),
        ("age + tgrade", ConfigError, "one outcome on the left"),
        ("Surv(days, died) ~ age | horTh", ConfigError, "one outcome on the left"),
        ("Surv(days, died ~ age", ConfigError, "cannot be read"),
        ("Surv(days died) ~ age", ConfigError, "cannot be read"),
    ],
)
def test_errors_name_the_term(
    frame: pd.DataFrame, formula: str, kind: type[SstorchError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        model_frame(formula, frame)


def test_a_fit_by_formula_is_that_of_columns_by_name(frame: pd.DataFrame, gbsg2: SurvivalData) -> None:
    X, y, columns = model_frame("Surv(days, died) ~ s(pnodes) + horTh", frame)
    by_formula = SurvivalRegression(columns=columns).fit(X, y)
    by_hand = SurvivalRegression(columns=Columns({"pnodes": "smooth"})).fit(
        gbsg2.frame[["pnodes", "horTh"]], gbsg2.y
    )
    np.testing.assert_array_equal(by_formula.predict(frame), by_hand.predict(frame))


def test_coefficients_are_those_of_the_same_formula_in_lifelines(frame: pd.DataFrame) -> None:
    right = "age * horTh + C(pnodes)"
    few = pl.from_pandas(frame.assign(pnodes=frame["pnodes"].clip(upper=3)))
    X, y, columns = model_frame(f"Surv(days, died) ~ {right}", few)
    model = SurvivalRegression("weibull", Penalties(ridge=0), columns).fit(X, y)
    plain = few.select("age", "horTh", "pnodes", "days", "died").to_pandas()
    theirs = WeibullAFTFitter().fit(plain, "days", "died", formula=right).summary.loc["lambda_"]
    found, level = model.coefficients()["estimate"], "C(pnodes)[T.{}.0]".format  # 3 is the most frequent one
    pairs = [
        (found["age", "per unit"], theirs.loc["age", "coef"]),
        (found["age:horTh", "yes vs no"], theirs.loc["age:horTh[T.yes]", "coef"]),
        (found["pnodes", "1 vs 3"], -theirs.loc[level(3), "coef"]),
        (found["pnodes", "2 vs 3"], theirs.loc[level(2), "coef"] - theirs.loc[level(3), "coef"]),
    ]
    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-3, atol=1e-6)
