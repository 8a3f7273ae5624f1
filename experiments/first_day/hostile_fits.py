"""A thousand random fits that nobody would plan: what do they end in?

python experiments/first_day/hostile_fits.py [--fits 1000] [--first 0] [--intervals]

Every fit has its own leaf, trainer, start, depth and encoding, 3 to 200 rows with times between 1e-5 and 1e7,
tied or not, weights, entry times, missing cells, columns that are constant, copies or very large. It has to
end in a tree or in an error of the package; a tree has to give finite falling curves, and risk, hazards,
quantiles and restricted means without NaN, at training rows and at rows far away. With ``--intervals`` events
are known up to random intervals, some from zero on, some of hardly any width.
"""

from __future__ import annotations

import argparse
import time
import traceback
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import torch

from sstorch import SoftSurvivalTree, Surv
from sstorch.exceptions import SstorchError
from sstorch.nn import FAMILIES
from sstorch.soft.settings import INITS, TRAINERS
from tests.flat import soft_tree


def draw_rows(
    rng: np.random.Generator,
) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray | None, dict[str, Any]]:
    """Covariates, times, events, entry times or None, and the other arguments of ``fit``."""
    n, p = int(rng.integers(3, 201)), int(rng.integers(1, 7))
    scale = 10.0 ** rng.uniform(-5, 7)
    x = rng.normal(size=(n, p))
    time = scale * np.exp(rng.choice([0.0, 0.5, 2.0]) * x[:, 0]) * rng.weibull(rng.choice([0.4, 1, 5]), n)
    time = np.clip(time, 1e-5, 1e7)
    if rng.random() < 0.3:
        time = np.ceil(time / scale * 3) * scale / 3  # ties
    if rng.random() < 0.05:
        time[:] = time[0]
    event = rng.random(n) < rng.choice([0.05, 0.3, 0.7, 1.0])
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(p)])
    if rng.random() < 0.3:
        frame["size"] = 10.0 ** rng.uniform(-8, 12) * rng.normal(size=n)
    if rng.random() < 0.2:
        frame["copy"] = frame["x0"]
    if rng.random() < 0.3:
        frame["kind"] = rng.choice(list("abcdefgh")[: int(rng.integers(1, 9))], n)
    if rng.random() < 0.2:
        frame["flag"] = rng.random(n) < 0.1
    if rng.random() < 0.2:
        frame["x0"] = frame["x0"].mask(rng.random(n) < 0.2)
    if rng.random() < 0.1:
        frame["constant"] = 1.0
    entry, more = None, {}
    if rng.random() < 0.3:
        more["sample_weight"] = rng.choice([0.0, 1e-6, 1.0, 100.0], n)
    if rng.random() < 0.2:
        entry = time * rng.choice([0.0, 0.5, 0.999], n)
    return frame, time, event, entry, more


def draw_intervals(rng: np.random.Generator, time: np.ndarray, event: np.ndarray, entry: object) -> Any:
    """What is known of the times if events are not seen when they come."""
    n, kind = len(time), rng.integers(0, 5, len(time))
    width = time * np.choose(kind, [0.0, 1e-12, 1e-3, 0.5, 1.0])
    lower = np.where(event, time - width * rng.random(n), time)
    lower = np.maximum(np.where(event & (kind == 4), 0.0, lower), 0.0 if entry is None else np.asarray(entry))
    upper = np.where(event, np.maximum(time + width * rng.exponential(1, n), lower), np.inf)
    return Surv.interval(np.minimum(lower, upper), upper, entry=entry)


def draw_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Parameters of a tree."""
    chosen: dict[str, Any] = {
        "depth": int(rng.integers(0, 5)),
        "leaf": str(rng.choice(list(FAMILIES))),
        "trainer": [None, *TRAINERS][rng.integers(0, 1 + len(TRAINERS))],
        "init": [None, *INITS][rng.integers(0, 1 + len(INITS))],
        "n_starts": int(rng.integers(1, 4)),
        "random_state": int(rng.integers(0, 1000)),
    }
    for name, values in {
        "ridge": [0.0, 1e-6, 1e-1],
        "numeric": ["linear", "spline(3)", "quantile"],
        "prediction": ["mixture"],
        "dtype": ["float32"],
        "min_leaf": [0.0, 0.3],
    }.items():
        if rng.random() < 0.2:
            chosen[name] = values[rng.integers(0, len(values))]
    return chosen


def faults(tree: SoftSurvivalTree, frame: pd.DataFrame, time: np.ndarray) -> list[str]:
    """What a fitted tree must not do."""
    far = frame.copy()
    for name in frame.select_dtypes("float").columns:
        far[name] = far[name] * 1e3
    times = np.sort(np.concatenate([[0.0], np.quantile(time, [0.01, 0.3, 0.6, 1.0]), [time.max() * 10]]))
    found = []
    for place, rows in {"training rows": frame, "far rows": far}.items():
        curves = tree.predict_survival_function(rows, times)
        if not np.isfinite(curves).all() or (curves < 0).any() or (curves > 1).any():
            found.append(f"curves of {place}")
        if (np.diff(curves, axis=1) > 4 * np.finfo(curves.dtype).eps).any():
            found.append(f"rising curves of {place}")
        predicted = {"risk": tree.predict(rows), "hazard": tree.predict_hazard_function(rows, times[1:])}
        predicted["quantile"] = tree.predict_quantile(rows, 0.5)
        predicted["restricted mean"] = tree.predict_rmst(rows, float(times[-2]))
        for what, values in predicted.items():
            if np.isnan(values).any():
                found.append(f"NaN in {what} of {place}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fits", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first fit")
    parser.add_argument("--intervals", action="store_true", help="events are known up to intervals")
    options = parser.parse_args()
    torch.set_num_threads(1)
    outcomes: Counter[str] = Counter()
    slowest = (0.0, 0)
    for seed in range(options.first, options.first + options.fits):
        rng = np.random.default_rng(seed)
        frame, times, event, entry, more = draw_rows(rng)
        settings = draw_settings(rng)
        start = time.process_time()
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                draw = draw_intervals if options.intervals else None
                y = Surv(times, event, entry=entry) if draw is None else draw(rng, times, event, entry)
                tree = soft_tree(**settings).fit(frame, y, **more)
                found = faults(tree, frame, times)
            names = {warning.category.__name__ for warning in told}
            outcome = "faults" if found else "tree, warned" if names else "tree"
            strange = names - {"DataWarning"}
            if found or strange:
                print(f"seed {seed}: {'; '.join(found)} {sorted(strange)} {settings}", flush=True)
        except SstorchError as error:
            outcome = f"{type(error).__name__}: {str(error)[:48]}"
        except Exception:
            outcome = "an exception that is not the package's"
            print(f"seed {seed}: {settings}\n{traceback.format_exc(limit=-3)}", flush=True)
        seconds = time.process_time() - start
        slowest = max(slowest, (seconds, seed))
        if seconds > 20:
            print(f"seed {seed}: {seconds:.1f} CPU s, {settings}", flush=True)
        outcomes[outcome] += 1
    for outcome, number in outcomes.most_common():
        print(f"{number:5d}  {outcome}")
    print(f"slowest {slowest[0]:.1f} CPU s (seed {slowest[1]})")


if __name__ == "__main__":
    main()
