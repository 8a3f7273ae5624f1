"""Networks of the torch layer and of pycox on the same folds, by one protocol: C, Brier score, seconds.

python experiments/torch/study.py run --data gbsg2 metabric support
python experiments/torch/study.py report
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from sstorch import SurvivalData, TorchSurvival, load_dataset, metrics
from sstorch.data import Preprocessor, Schema, folds_of, stratified_folds
from sstorch.data.datasets import Wheel
from sstorch.data.folds import split
from sstorch.nn import HazardHead, LogisticHazard, SoftTree

os.environ.setdefault("PYCOX_DATA_DIR", str(Path(tempfile.gettempdir(), "pycox")))
FOLDER = Path(__file__).parent
# The same for all: rates among which the held-out loss chooses, epochs of which it keeps the best one.
RATES, EPOCHS, BATCH, DECAY, HELD_OUT = (0.001, 0.003, 0.01), 60, 256, 0.01, 0.2
SURVIVORS = Wheel(
    requirement="survivors==1.8.0",
    file="survivors-1.8.0-py3-none-any.whl",
    sha256="f283085cd5605fa22cd2ffe5d2fe42b07eb286c07e2edfe2dd86afa709e9fdc3",
)


def load(name: str) -> SurvivalData:
    """A data set of the package, or METABRIC's clinical features without what came after the diagnosis."""
    if name != "metabric":
        return load_dataset(name)
    content = SURVIVORS.read("survivors/datasets/data/metabric.tsv")
    frame = pd.read_csv(io.BytesIO(content), sep="\t", skiprows=4).rename(columns=str.lower)
    frame = frame.dropna(subset=["os_months", "os_status"])
    frame = frame.drop(columns=["patient_id", "vital_status", "rfs_status", "rfs_months", "sex"])
    frame["os_status"] = frame["os_status"].map({"0:LIVING": 0, "1:DECEASED": 1})
    frame["cohort"] = frame["cohort"].astype(int).astype("category")
    return SurvivalData.from_frame(frame, time="os_months", event="os_status")


def body(in_features: int) -> nn.Sequential:
    """Two layers of 32 units with batch normalisation and dropout."""
    layers: list[nn.Module] = []
    for width in (in_features, 32):
        layers += [nn.Linear(width, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Dropout(0.1)]
    return nn.Sequential(*layers)


HEADS: dict[str, Callable[[], nn.Module]] = {
    "DeepWeibull": lambda: HazardHead(32, "weibull"),
    "soft tree": lambda: SoftTree(32, depth=2, family="weibull"),
    "three experts": lambda: HazardHead(32, "log_logistic", n_components=3),
    "logistic hazard": lambda: HazardHead(32, "logistic_hazard"),
    "logistic hazard, free": lambda: HazardHead(32, LogisticHazard(times=19, ancillary="linear")),
    "spline_ph": lambda: HazardHead(32, "spline_ph"),
}


def fit_torch_survival(title: str, train: SurvivalData, rate: float) -> tuple[float, Any]:
    """Held-out loss and model."""
    model = TorchSurvival(
        lambda p: nn.Sequential(body(p), HEADS[title]()),
        epochs=EPOCHS,
        batch_size=BATCH,
        lr=rate,
        weight_decay=DECAY,
        holdout=HELD_OUT,
    )
    model.fit(train.frame, train.y)
    return model.loss_, model


class TimeNetwork(nn.Module):
    """Relative risk g(t, x) of Cox-Time: the body reads time as a further feature."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(body(in_features + 1), nn.Linear(32, 1, bias=False))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Risks, (n, 1)."""
        return self.layers(torch.cat([x, time], 1))


class Pycox:
    """A model of pycox with the body, features, held-out rows, optimiser and epochs of the others."""

    def __init__(self, title: str, train: SurvivalData, rate: float) -> None:
        import torchtuples as tt
        from pycox import models

        kind = getattr(models, title)
        held = folds_of(train, round(1 / HELD_OUT), 0) == 0
        order = np.argsort(train.time, kind="stable")  # as the baseline of Cox-Time needs it
        train, held = train.subset(order), held[order]
        self.preprocessor = Preprocessor(Schema.of(train.frame)).fit(train.frame)
        x = self.preprocessor.transform(train.frame).astype("float32")
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        if title == "CoxTime":
            labels = kind.label_transform()
            net: nn.Module = TimeNetwork(x.shape[1])
            options: dict[str, Any] = {"labtrans": labels}
        else:
            labels = kind.label_transform(20, scheme="quantiles")
        target = labels.fit_transform(train.time, train.event.astype("float32"))
        if title == "LogisticHazard":
            net = nn.Sequential(body(x.shape[1]), nn.Linear(32, len(labels.cuts)))
            options = {"duration_index": labels.cuts}
        inside, outside = ((x[rows], tuple(part[rows] for part in target)) for rows in (~held, held))
        optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=DECAY)
        self.model = kind(net, optimizer, device="cpu", **options)
        with tempfile.TemporaryDirectory() as folder:
            best = tt.callbacks.BestWeights(file_path=str(Path(folder, "weights.pt")))
            left_out = tt.tuplefy(*outside)
            if title == "CoxTime":  # its loss samples the rows at risk: ten times as many are steadier
                left_out = left_out.repeat(10).cat()
            self.model.fit(*inside, BATCH, EPOCHS, [best], verbose=False, val_data=left_out)
        self.loss = float(self.model.val_metrics.to_pandas()["loss"].min())
        if title == "CoxTime":
            self.model.compute_baseline_hazards(*inside)

    def predict_survival_function(self, X: object, times: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Curves as pycox has them: steps of Cox-Time, lines between the ends of discrete intervals."""
        x = self.preprocessor.transform(X).astype("float32")
        model = self.model.interpolate(100) if hasattr(self.model, "interpolate") else self.model
        surv = model.predict_surv_df(x)
        at = surv.index.searchsorted(np.asarray(times), side="right") - 1
        curves = np.where(at[:, None] >= 0, surv.to_numpy(float)[np.maximum(at, 0)], 1.0).T
        return np.minimum.accumulate(np.clip(curves, 0, 1), axis=1)


def fit_pycox(title: str, train: SurvivalData, rate: float) -> tuple[float, Any]:
    """Held-out loss and model."""
    model = Pycox(title, train, rate)
    return model.loss, model


PEERS = ("LogisticHazard", "CoxTime")


def run(arguments: argparse.Namespace) -> None:
    """Write a row per data set, fold and model; those of an earlier run are kept."""
    done = pd.read_csv(arguments.out) if arguments.out.exists() else pd.DataFrame()
    table = done.to_dict("records")
    known = {(row["data"], row["fold"], row["model"]) for row in table}
    for name in arguments.data:
        data = load(name)
        for fold in split(data, stratified_folds(data.event, 5, seed=0)):
            for title in arguments.models:
                if (name, fold.number, title) in known:
                    continue
                fit = fit_pycox if title in PEERS else fit_torch_survival
                begin = time.process_time()
                found = {rate: fit(title, fold.train, rate) for rate in RATES}
                seconds = (time.process_time() - begin) / len(RATES)
                rate = min(found, key=lambda rate: found[rate][0])
                model = found[rate][1]
                scores = metrics.evaluate(model, fold.train, fold.test, metrics=["c_harrell", "ibs_graf"])
                c, ibs = scores["value"].round(4)
                table.append(
                    {"data": name, "fold": fold.number, "model": title, "rate": rate, "c": c, "ibs": ibs}
                    | {"seconds": round(seconds, 2)}
                )
                print(*table[-1].values(), flush=True)
                pd.DataFrame(table).to_csv(arguments.out, index=False)


def report(arguments: argparse.Namespace) -> None:
    """Means over folds."""
    table = pd.read_csv(arguments.out)
    means = table.groupby(["data", "model"])[["c", "ibs", "seconds"]].mean().unstack("data")
    means = means.loc[[*HEADS, *PEERS]].swaplevel(axis=1)
    for name in means.columns.levels[0]:
        part = means[name]
        print(f"\n| {name} | C | IBS | seconds |\n|---|---|---|---|")
        for title, row in part.iterrows():
            print(f"| {title} | {row['c']:.3f} | {row['ibs']:.3f} | {row['seconds']:.1f} |")
        ours, theirs = part["c"].loc[[*HEADS]].max(), part["c"].loc[[*PEERS]].max()
        print(f"best: {ours:.3f}, pycox {theirs:.3f}")


def main() -> None:
    """Run the study, or print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--data", nargs="+", default=["gbsg2", "metabric", "support"])
    parser.add_argument("--models", nargs="+", default=[*HEADS, *PEERS])
    parser.add_argument("--out", type=Path, default=FOLDER / "scores.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    (run if arguments.command == "run" else report)(arguments)


if __name__ == "__main__":
    main()
