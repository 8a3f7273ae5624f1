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
    **{name: (name, "random") for name in FAMILIES},
    "spline_po, init=cox": ("spline_po", "cox"),
    "spline_ph, init=cox": ("spline_ph", "cox"),
    "log_logistic, ancillary=linear": ("{_target_: sstorch.nn.LogLogistic, ancillary: linear}", "random"),
}
TRAINING = ("model.penalties.ridge=1e-3", "model.penalties.gate_ridge=1e-4")


def main() -> None:
    """Run `sstorch` for each leaf and depth; write scores.csv, one row a run and rule."""
    rows = []
    for depth in (1, 2):
        for name, (leaf, start) in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                tree = (f"model.leaf={leaf}", f"model.init={start}", f"model.depth={depth}")
                options = ("cv.peers=false", "logger=none", "threads=1", f"hydra.run.dir={run}")
                command = [sys.executable, "-m", "sstorch.bench.cli", *tree, *TRAINING, *options]
                begin = time.perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
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
