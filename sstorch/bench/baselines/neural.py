"""Neural networks of pycox: DeepSurv, Cox-Time and logistic hazard."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from sstorch._types import FloatArray
from sstorch.bench.baselines.base import (
    Baseline,
    BreslowBaseline,
    Encoder,
    Predict,
    inner_folds,
    steps,
    straight_lines,
)
from sstorch.data import SurvivalData
from sstorch.exceptions import TrainingError

# Times, and survival there, (n, n_times), of features (n, p).
_Trained = tuple[FloatArray, Callable[[FloatArray], FloatArray]]


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralBaseline(Baseline):
    """Multilayer perceptron, stopped early by the loss on a random fifth of the rows, stratified by event."""

    packages: ClassVar = ("pycox", "torchtuples")

    hidden: tuple[int, ...] = (32, 32)  # width of each hidden layer
    dropout: float = 0.1  # share of hidden units that are dropped in training
    learning_rate: float = 0.01  # of AdamW
    weight_decay: float = 0.01  # of AdamW
    # rows of a step; None takes all, whose partial likelihood needs no sampling of risk sets
    batch_size: int | None = 256
    epochs: int = 500  # most passes over the rows
    patience: int = 20  # epochs without improvement before training stops; the best epoch is kept

    @abstractmethod
    def _train(self, x: FloatArray, train: SurvivalData, left_out: Any) -> _Trained:
        """Train on float32 features, and stop by the rows `left_out`, (n,)."""

    def _fit(self, encoder: Encoder, train: SurvivalData) -> Predict:
        left_out = inner_folds(train, 5, self.random_state) == 0
        with _reproducible(self.random_state):
            knots, predict = self._train(_float32(encoder.x), train, left_out)

        def values(x: FloatArray) -> FloatArray:
            # Its loaders draw random numbers even to predict.
            with _reproducible(self.random_state), np.errstate(over="ignore"):
                return predict(_float32(x))

        return straight_lines(knots, values) if self.name == "logistic_hazard" else steps(knots, values)

    def _mlp(self, n_features: int, n_outputs: int, **options: Any) -> torch.nn.Module:
        made: torch.nn.Module = _packages()[1].practical.MLPVanilla(
            n_features, list(self.hidden), n_outputs, batch_norm=False, dropout=self.dropout, **options
        )
        return made

    def _run(self, kind: str, net: torch.nn.Module, kept: tuple[Any, Any], left_out: Any) -> Any:
        """A model of pycox fitted to ``kept``, features and target, with the weights best for others."""
        from torchtuples.callbacks import EarlyStopping

        step = torch.optim.AdamW(net.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        model = getattr(_packages()[0].models, kind)(net, step, device="cpu")
        with tempfile.TemporaryDirectory() as folder:
            # Without a path it leaves a file in the working directory.
            stop = EarlyStopping(patience=self.patience, file_path=str(Path(folder, "weights.pt")))
            size = len(kept[0]) if self.batch_size is None else self.batch_size
            with np.errstate(all="ignore"):
                model.fit(*kept, size, self.epochs, [stop], verbose=False, val_data=left_out)
        if not np.isfinite(model.val_metrics.to_pandas()["loss"].min()):
            raise TrainingError(f"training of {self.name} diverged; give a smaller learning_rate")
        return model


@dataclass(kw_only=True, eq=False, repr=False)
class DeepSurv(NeuralBaseline):
    """Network in a Cox model, Breslow's baseline: Katzman et al. (2018), BMC Med. Res. Methodol. 18, 24."""

    name: ClassVar[str] = "deepsurv"

    batch_size: int | None = None

    def _train(self, x: FloatArray, train: SurvivalData, left_out: Any) -> _Trained:
        # Only their order counts, and float32 keeps small integers apart.
        rank, event = _float32(np.unique(train.time, return_inverse=True)[1]), _float32(train.event)
        kept, others = ((x[rows], (rank[rows], event[rows])) for rows in (~left_out, left_out))
        model = self._run("CoxPH", self._mlp(x.shape[1], 1, output_bias=False), kept, others)

        def log_risk(x: FloatArray) -> FloatArray:
            return np.asarray(model.predict(x), dtype=np.float64)[:, 0]

        baseline = BreslowBaseline.of(log_risk(x), train.y)
        return baseline.jumps, lambda x: baseline.survival(log_risk(x))


@dataclass(kw_only=True, eq=False, repr=False)
class CoxTime(NeuralBaseline):
    """Relative risk g(t, x), with Breslow's baseline: Kvamme, Borgan and Scheel (2019), JMLR 20."""

    name: ClassVar[str] = "coxtime"

    def _train(self, x: FloatArray, train: SurvivalData, left_out: Any) -> _Trained:
        pycox, tuples = _packages()
        order = np.argsort(train.time, kind="stable")
        x, kept, time, event = x[order], ~left_out[order], train.time[order], _float32(train.event[order])
        scaled = _float32((time - time.mean()) / time.std())
        network = pycox.models.cox_time.MLPVanillaCoxTime
        net = network(x.shape[1], list(self.hidden), batch_norm=False, dropout=self.dropout)
        # Its loss samples one row at risk for each event: ten times as many make it steadier.
        repeated = tuples.tuplefy(x[~kept], (scaled[~kept], event[~kept])).repeat(10).cat()
        model = self._run("CoxTime", net, (x[kept], (scaled[kept], event[kept])), repeated)
        with np.errstate(over="ignore"):
            baseline = model.compute_baseline_hazards(x, (scaled, event), set_hazards=False)
        baseline = baseline[baseline > 0]
        distinct, first = np.unique(scaled, return_index=True)

        def survival(x: FloatArray) -> FloatArray:
            hazard = model.predict_cumulative_hazards(x, baseline_hazards_=baseline).to_numpy()
            return np.exp(-np.asarray(hazard.T, dtype=np.float64))

        return time[first][np.isin(distinct, baseline.index)], survival


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralLogisticHazard(NeuralBaseline):
    """A discrete hazard for each of several intervals, whose ends are quantiles of Kaplan-Meier's estimate.

    Between the ends the curves are straight (constant density), from S(0) = 1 on. Gensheimer and Narasimhan
    (2019), PeerJ 7, e6257; Kvamme and Borgan (2021), Lifetime Data Analysis 27, for cuts and interpolation.
    """

    name: ClassVar[str] = "logistic_hazard"

    n_cuts: int = 20  # times that the network predicts at, 0 among them; fewer where they coincide

    def _train(self, x: FloatArray, train: SurvivalData, left_out: Any) -> _Trained:
        labels = _packages()[0].models.LogisticHazard.label_transform(self.n_cuts, scheme="quantiles")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of cuts that coincide
            position, event = labels.fit_transform(train.time, train.event)
        kept, others = ((x[rows], (position[rows], event[rows])) for rows in (~left_out, left_out))
        model = self._run("LogisticHazard", self._mlp(x.shape[1], len(labels.cuts)), kept, others)

        def survival(x: FloatArray) -> FloatArray:
            curves = np.asarray(model.predict_surv(x), dtype=np.float64)
            # No row has an event at the first cut, time zero: the hazard there is excluded.
            return curves[:, 1:] / curves[:, :1]

        return labels.cuts[1:], survival


def _float32(values: Any) -> Any:
    return np.asarray(values, dtype=np.float32)


@contextlib.contextmanager
def _reproducible(seed: int) -> Iterator[None]:
    """Seed the global generators, which pycox draws from, use one thread, and restore all afterwards."""
    state, threads = np.random.get_state(), torch.get_num_threads()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        try:
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            torch.set_num_threads(1)
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
            torch.set_num_threads(threads)


def _packages() -> tuple[Any, Any]:
    """pycox, whose import makes a folder for data sets, not where it is installed; torchtuples."""
    os.environ.setdefault("PYCOX_DATA_DIR", str(Path(tempfile.gettempdir(), "pycox")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations within it
        import pycox.models
        import torchtuples
    return pycox, torchtuples


BASELINES: tuple[type[Baseline], ...] = (DeepSurv, CoxTime, NeuralLogisticHazard)
