"""Every leaf on GBSG2: see README.md here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from sstorch.nn import FAMILIES

HERE = Path(__file__).parent
SCORES = ("c_harrell", "ibs_sksurv", "ibs_graf", "log_likelihood")
VARIANTS = {
    **{name: (f"leaf={name}", "init=random") for name in FAMILIES},
    "spline_po, init=cox": ("leaf=spline_po", "init=cox"),
    "spline_ph, init=cox": ("leaf=spline_ph", "init=cox"),
    "spline_po, monotone=false": ("leaf=spline_po", "init=random", "leaf.options.monotone=false"),
    "log_logistic, ancillary=linear": ("leaf=log_logistic", "init=random", "leaf.options.ancillary=linear"),
}
TRAINING = ("trainer=nodec", "tree.ridge=1e-3", "tree.gate_ridge=1e-4")


def main() -> None:
    """Run `sstorch` for each leaf and depth; write scores.csv, one row a run and rule."""
    rows = []
    for depth in (1, 2):
        for name, overrides in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                command = [sys.executable, "-m", "sstorch.bench.cli", *overrides, f"tree.depth={depth}"]
                options = [*TRAINING, "logger=none", "device.threads=1", f"hydra.run.dir={run}"]
                begin = time.perf_counter()
                subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
                seconds = time.perf_counter() - begin
                scores = pd.read_csv(run / "scores.csv")
            test = scores[scores["part"] == "test"]
            for rule, chosen in (("all starts", test), ("chosen start", test[test["chosen"]])):
                means = chosen[[*SCORES, "objective"]].mean().to_dict()
                rows.append({"leaf": name, "depth": depth, "trees": rule, **means, "seconds": seconds})
            print(rows[-2], flush=True)
    pd.DataFrame(rows).to_csv(HERE / "scores.csv", index=False, float_format="%.5f")


if __name__ == "__main__":
    main()
