"""Four conventions of the integrated Brier score on the same predictions: see README.md here."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter
from osst.model import metrics as osst_metrics
from sksurv import metrics as sksurv_metrics
from sksurv.datasets import load_whas500
from sksurv.nonparametric import kaplan_meier_estimator
from SurvSet.data import SurvLoader

from sstorch import load_dataset
from sstorch.data import stratified_folds
from sstorch.metrics import (
    KaplanMeier,
    evaluation_times,
    integrated_brier_score,
    scaled_integrated_brier_score,
)

CONVENTIONS = ("graf", "sksurv", "surtree", "osst")
N_FOLDS, SEED = 5, 0
MIDPOINTS = 20_000


def cohorts() -> dict[str, tuple[pd.DataFrame, np.ndarray, np.ndarray]]:
    """Features as numbers, times (zero moved to half the smallest positive) and events."""
    gbsg2 = load_dataset("gbsg2")
    whas_x, whas_y = load_whas500()
    aids = SurvLoader().load_dataset("Aids2")["df"]
    raw = {
        "GBSG2": (gbsg2.frame, gbsg2.time, gbsg2.event),
        "Whas500": (whas_x, whas_y["lenfol"], whas_y["fstat"]),
        "Aids2": (aids.drop(columns=["pid", "event", "time"]), aids["time"], aids["event"]),
    }
    result = {}
    for name, (frame, time, event) in raw.items():
        encoded = pd.get_dummies(frame, drop_first=True, dtype=float).astype(float)
        times = np.asarray(time, dtype=float)
        times = np.where(times == 0.0, times[times > 0].min() / 2, times)
        result[name] = encoded, times, np.asarray(event).astype(bool)
    return result


class KaplanMeierModel:
    """Everybody gets the curve of the training rows."""

    def __init__(self, X: pd.DataFrame, time: np.ndarray, event: np.ndarray) -> None:
        self.km = KaplanMeier.fit((time, event))

    def predict(self, X: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """S(t), shape (n, n_times)."""
        return np.tile(self.km.at(times), (len(X), 1))


class CoxModel:
    """Cox regression of lifelines, lightly penalised so that rare levels do not run away."""

    def __init__(self, X: pd.DataFrame, time: np.ndarray, event: np.ndarray) -> None:
        self.kept = X.columns[X.std() > 0]
        frame = X[self.kept].assign(time=time, event=event)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # low variance of rare levels
            self.fit = CoxPHFitter(penalizer=1e-3).fit(frame, "time", "event")

    def predict(self, X: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        """S(t | x), shape (n, n_times)."""
        # S0 as the right-continuous step function that it is, to the power of the relative risk.
        base = self.fit.baseline_survival_
        steps = np.concatenate(([1.0], np.minimum.accumulate(base.to_numpy()[:, 0])))
        curve = steps[np.searchsorted(base.index.to_numpy(), times, side="right")]
        return curve ** self.fit.predict_partial_hazard(X[self.kept]).to_numpy()[:, None]


def structured(time: np.ndarray, event: np.ndarray) -> np.ndarray:
    y = np.empty(time.size, dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = event, time
    return y


def graf_by_midpoints(test, train, curves: np.ndarray, grid: np.ndarray) -> float:
    """The formula on a fine grid of midpoints, G from scikit-survival; straight lines between grid times."""
    time, event = test
    last = time.max()
    t = (np.arange(MIDPOINTS) + 0.5) * last / MIDPOINTS
    knots, g = kaplan_meier_estimator(train[1], train[0], reverse=True)
    steps = np.concatenate(([1.0], g))
    floor = steps[steps > 0].min()
    at_event = 1 / np.maximum(steps[np.searchsorted(knots, time, side="left")], floor)
    at_risk = 1 / np.maximum(steps[np.searchsorted(knots, t, side="right")], floor)
    total = 0.0
    for i in range(time.size):
        s = np.interp(t, np.concatenate(([0.0], grid)), np.concatenate(([1.0], curves[i])))
        failed = time[i] <= t
        total += np.where(failed, event[i] * s**2 * at_event[i], (1 - s) ** 2 * at_risk).mean()
    return total / time.size


def peer_score(convention: str, test, train, curves: np.ndarray, km: np.ndarray, grid: np.ndarray) -> float:
    """The number of the package that the convention is named after; NaN where it refuses the rows."""
    if convention == "graf":
        return graf_by_midpoints(test, train, curves, grid)
    if convention == "osst":
        with np.errstate(divide="ignore"):
            return float(
                osst_metrics.integrated_brier_score(
                    train[1].astype(int), train[0], test[1].astype(int), test[0], curves, grid
                )
            )
    try:
        model, base = (
            sksurv_metrics.integrated_brier_score(structured(*train), structured(*test), values, grid)
            for values in (curves, km)
        )
    except ValueError as error:
        print(f"  scikit-survival refuses: {error}")
        return np.nan
    return float(model if convention == "sksurv" else 1.0 - model / base)


def main() -> None:
    """Write scores.csv (a row a fold, model and convention) and print the table of means."""
    rows = []
    for name, (X, time, event) in cohorts().items():
        fold = stratified_folds(event, N_FOLDS, SEED)
        for k in range(N_FOLDS):
            inside, outside = fold == k, fold != k
            test, train = (time[inside], event[inside]), (time[outside], event[outside])
            for label, model_class in (("Kaplan-Meier", KaplanMeierModel), ("Cox", CoxModel)):
                model = model_class(X[outside], *train)
                for convention in CONVENTIONS:
                    grid = evaluation_times(test[0], train[0], convention)
                    curves = model.predict(X[inside], grid)
                    km = np.tile(KaplanMeier.fit(train).at(grid), (inside.sum(), 1))
                    arguments = (test, curves, grid)
                    rows.append(
                        {
                            "data": name,
                            "model": label,
                            "fold": k,
                            "convention": convention,
                            "sstorch": integrated_brier_score(*arguments, train=train, convention=convention),
                            "peer": peer_score(convention, test, train, curves, km, grid),
                            "scaled": scaled_integrated_brier_score(
                                *arguments, train=train, convention=convention
                            ),
                        }
                    )
    table = pd.DataFrame(rows)
    table.to_csv(Path(__file__).parent / "scores.csv", index=False, float_format="%.8f")
    table["difference"] = (table["sstorch"] - table["peer"]).abs()
    groups = table.groupby(["data", "model", "convention"], sort=False)
    answered = table.dropna().groupby(["data", "model", "convention"], sort=False)
    means = groups[["sstorch", "scaled"]].mean()
    means["sstorch, folds with peer"] = answered["sstorch"].mean()
    means["peer"] = answered["peer"].mean()
    means["folds with peer"] = answered["peer"].count()
    means["largest difference"] = answered["difference"].max()
    print(means.to_string(float_format=lambda x: f"{x:.4g}"))


if __name__ == "__main__":
    main()
