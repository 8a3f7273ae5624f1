"""Rows of two competing causes."""

import numpy as np
import pandas as pd

from sstorch import Surv


def simulated(n: int, seed: int = 0) -> tuple[pd.DataFrame, Surv]:
    """Relapse by size and grade, death by age."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=["age", "size", "marker"])
    frame["grade"] = pd.Categorical(rng.choice(["I", "II", "III"], n))
    relapse = np.exp(-0.7 * frame["size"] - 0.4 * frame["grade"].cat.codes) * rng.weibull(1.3, n) * 1200
    death = np.exp(-0.7 * frame["age"]) * rng.weibull(1.8, n) * 1500
    censored = rng.uniform(100, 3000, n)
    time = np.ceil(np.minimum(np.minimum(relapse, death), censored))
    cause = np.select([relapse <= np.minimum(death, censored), death <= censored], [1, 2], 0)
    return frame, Surv(time, cause, causes={1: "relapse", 2: "death"})
