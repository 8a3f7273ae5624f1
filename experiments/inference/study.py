"""Coverage of 95 % intervals in simulated data: ``python experiments/inference/study.py``."""

import argparse
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

from sstorch import (
    Columns,
    Penalties,
    SoftSurvivalTree,
    Surv,
    SurvivalRegression,
    inference,
)
from sstorch.exceptions import DataWarning
from sstorch.validation import contrast

HERE = Path(__file__).parent
TIMES = np.array([0.25, 0.5, 1.0, 1.5, 2.0])
Z = 1.959964


def covariates(rng, n):
    """Two numbers and a category."""
    return pd.DataFrame(
        {
            "x": rng.uniform(-2, 2, n),
            "z": rng.normal(size=n),
            "g": pd.Categorical(rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])),
        }
    )


def shift(frame):
    """Effect of ``z`` and ``g``."""
    return 0.5 * frame["z"].to_numpy() + 0.4 * (frame["g"] == "b").to_numpy()


def curve(x):
    """Effect of ``x``, bent."""
    return 1.2 * np.sin(1.2 * np.asarray(x))


def censored(rng, time, cause=None):
    """Administrative and random censoring; about a third."""
    limit = np.minimum(rng.exponential(4, len(time)), 3)
    event = (time <= limit) if cause is None else np.where(time <= limit, cause, 0)
    return np.minimum(time, limit), event


def within(low, truth, high):
    """Share of the truths between limits."""
    return float(np.mean((np.asarray(low) <= truth) & (truth <= np.asarray(high))))


def grid_rows():
    """Twelve subjects across the covariates."""
    return pd.DataFrame(
        {
            "x": np.linspace(-1.8, 1.8, 12),
            "z": np.tile([-1.0, 0.0, 1.0], 4),
            "g": pd.Categorical(np.repeat(["a", "b", "c"], 4), categories=["a", "b", "c"]),
        }
    )


def coefficient(table, term, contrast, truth):
    """Whether a coefficient's interval has the truth."""
    row = table.loc[(term, contrast)]
    return within(
        row["estimate"] - Z * row["standard error"], truth, row["estimate"] + Z * row["standard error"]
    )


def lines(rng, n):
    """Weibull regression by maximum likelihood: the textbooks' case."""
    frame = covariates(rng, n)
    scale = 0.6

    def location(rows):
        return 0.3 + 0.4 * rows["x"].to_numpy() - shift(rows)

    time, event = censored(rng, np.exp(location(frame) + scale * np.log(rng.exponential(size=n))))
    model = SurvivalRegression("weibull", Penalties(ridge=0), Columns(numeric="linear")).fit(
        frame, Surv(time, event)
    )
    table, rows = inference.coefficients(model), grid_rows()
    yield "coefficient of a line", coefficient(table, "x", "per unit", 0.4)
    reference = model.preprocessor_.mode_["g"]
    if reference == "a":
        yield "coefficient of a category", coefficient(table, "g", "b vs a", -0.4)
    survival = np.exp(-((TIMES / np.exp(location(rows))[:, None]) ** (1 / scale)))
    found = inference.predict(model, rows, times=TIMES)
    yield "S(t | x)", within(found.lower, survival, found.upper)
    median = np.exp(location(rows)) * np.log(2) ** scale
    found = inference.predict(model, rows, "quantile")
    yield "median", within(found.lower, median, found.upper)
    steps = (np.arange(4000) + 0.5) / 4000 * 2
    mean = np.exp(-((steps / np.exp(location(rows))[:, None]) ** (1 / scale))).mean(1) * 2
    found = inference.predict(model, rows, "rmst", tau=2.0)
    yield "restricted mean", within(found.lower, mean, found.upper)
    low = rows.assign(z=-1.0), rows.assign(z=1.0)
    truth = [np.exp(-((TIMES / np.exp(location(each))[:, None]) ** (1 / scale))) for each in low]
    found = contrast(model, low[1], low[0], times=TIMES)
    yield "difference of S(t | x)", within(found.lower, truth[1] - truth[0], found.upper)


def curves(rng, n):
    """Proportional odds with estimated penalties, the default: curves, contrasts, survival."""
    frame = covariates(rng, n)

    def eta(rows):
        return curve(rows["x"]) + shift(rows)

    uniform = rng.uniform(size=n)
    time, event = censored(rng, ((1 / uniform - 1) * np.exp(-eta(frame))) ** (1 / 1.5))
    model = SurvivalRegression().fit(frame, Surv(time, event))
    rows, points = grid_rows(), np.delete(np.linspace(-1.8, 1.8, 13), 6)
    survival = 1 / (1 + TIMES**1.5 * np.exp(eta(rows))[:, None])
    found = [inference.effect(model, "x", point, 0.0) for point in points]
    low, high = (np.log([getattr(one, side) for one in found]) for side in ("lower", "upper"))
    yield "curve, across the function", within(low, curve(points) - curve(0.0), high)
    found = inference.effect(model, "z", 1.0, -1.0)
    yield "contrast of a number", within(np.log(found.lower), 1.0, np.log(found.upper))
    found = inference.effect(model, "g", "b", "a")
    yield "contrast of a category", within(np.log(found.lower), 0.4, np.log(found.upper))
    found = inference.predict(model, rows, times=TIMES)
    yield "S(t | x)", within(found.lower, survival, found.upper)


def causes(rng, n):
    """Two competing causes with Weibull hazards, the default regression of each."""
    frame = covariates(rng, n)

    def rates(rows):
        return np.stack(
            [np.exp(-0.9 + curve(rows["x"]) / 2 + shift(rows)), np.exp(-1.0 - 0.4 * rows["z"].to_numpy())]
        )

    total = rates(frame).sum(0)
    time = (rng.exponential(size=n) / total) ** (1 / 1.3)
    cause = 1 + (rng.uniform(size=n) > rates(frame)[0] / total)
    y = Surv(*censored(rng, time, cause), causes=("one", "other"))
    model, rows = SurvivalRegression().fit(frame, y), grid_rows()
    each = rates(rows)
    whole = 1 - np.exp(-each.sum(0)[:, None] * TIMES**1.3)
    truth = (each / each.sum(0)).T[:, :, None] * whole[:, None]
    found = inference.predict(model, rows, "incidence", times=TIMES)
    yield "cumulative incidence", within(found.lower, truth, found.upper)


def clusters(rng, n):
    """Log-normal times in centres of 10 with shared deviations and one treatment a centre."""
    frame = covariates(rng, n)
    centre = np.arange(n) // 10
    frame["arm"] = (centre % 2).astype(float)
    location = 0.4 * frame["x"] + 0.3 * frame["arm"] + rng.normal(scale=0.4, size=n // 10)[centre]
    y = Surv(*censored(rng, np.exp(location.to_numpy() + rng.normal(scale=0.7, size=n))))
    model = SurvivalRegression("log_normal", Penalties(ridge=0), Columns(numeric="linear")).fit(frame, y)
    yield (
        "treatment by centre, rows independent",
        coefficient(inference.coefficients(model), "arm", "per unit", 0.3),
    )
    robust = inference.with_sandwich(model, frame, y, cluster=centre)
    yield (
        "treatment by centre, sandwich by centre",
        coefficient(inference.coefficients(robust), "arm", "per unit", 0.3),
    )


PATHS = {
    "at least .99": (0.99, 1.01),
    ".9 to .99": (0.9, 0.99),
    ".75 to .9": (0.75, 0.9),
    "below .75": (0, 0.75),
}


def gates(rng, n):
    """S(t | x) of 200 new subjects under a gate of several columns, by the probability of the path taken.

    The effect of a turns its sign where d + e > 0.
    """

    def subjects(count):
        return pd.DataFrame(rng.normal(size=(count, 6)), columns=list("abcdef"))

    def eta(rows):
        return 0.5 * rows["b"].to_numpy() + np.where(rows["d"] + rows["e"] > 0, rows["a"], -rows["a"])

    frame, rows = subjects(n), subjects(200)
    time, event = censored(rng, ((1 / rng.uniform(size=n) - 1) * np.exp(-eta(frame))) ** (1 / 1.5))
    model = SoftSurvivalTree(depth=1).fit(frame, Surv(time, event))
    if not model.choice_.has_trained_gates:
        return
    survival = 1 / (1 + TIMES**1.5 * np.exp(eta(rows))[:, None])
    found, probability = inference.predict(model, rows, times=TIMES), model.predict_leaf_proba(rows).max(1)
    for name, (low, high) in PATHS.items():
        own = (probability >= low) & (probability < high)
        if own.any():
            yield f"S(t | x), path {name}", within(found.lower[own], survival[own], found.upper[own])
    yield "share of paths at least .9", float((probability >= 0.9).mean())


SCENARIOS = {
    "lines": (lines, 300),
    "curves": (curves, 500),
    "causes": (causes, 600),
    "clusters": (clusters, 1000),
    "gates": (gates, 500),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulations", type=int, default=500)
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    path = HERE / "coverage.csv"
    old = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["scenario"])
    rows = old[~old["scenario"].isin(asked.scenarios)].to_dict("records")
    for name in asked.scenarios:
        simulate, n = SCENARIOS[name]
        found = defaultdict(list)
        for number in range(asked.simulations):
            for quantity, covered in simulate(np.random.default_rng([number, n]), n):
                found[quantity].append(covered)
        for quantity, shares in found.items():
            error = np.std(shares) / np.sqrt(len(shares))
            rows.append(
                {
                    "scenario": name,
                    "subjects": n,
                    "quantity": quantity,
                    "simulations": len(shares),
                    "coverage": round(float(np.mean(shares)), 4),
                    "standard error": round(float(error), 4),
                }
            )
        pd.DataFrame(rows).to_csv(path, index=False)


if __name__ == "__main__":
    main()
