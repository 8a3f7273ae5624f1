"""A torch module in front of a tree: it makes features, trained on the outcome, which a tree then reads."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sstorch._types import BoolArray
from sstorch.base import FrameEstimator
from sstorch.checks import check_integer
from sstorch.data import Preprocessor, Schema, SurvivalData, folds_of
from sstorch.exceptions import ConfigError, TrainingError
from sstorch.files import read_folder, reading, write_folder
from sstorch.nn import DesignMatrix, SoftTree
from sstorch.objective import Sample, leaf_losses
from sstorch.optim.starts.clusters import start_leaves
from sstorch.soft.batch import training_rows
from sstorch.soft.sample import stack_splits
from sstorch.soft.settings import AUTO, BatchSettings, LeafName
from sstorch.threads import threads_for

_FORMAT, _FORMAT_VERSION = "sstorch.torch_encoder", 1


class TorchEncoder(TransformerMixin, FrameEstimator):  # type: ignore[misc]
    """Encoder: features of a torch module, trained by the likelihood of survival times.

    The module maps encoded columns, (n, p) float64 on [0, 1], to k features, (n, k). It is trained jointly
    with a regression of one leaf on these features by Adam on mini-batches. The epoch with the lowest loss on
    the held-out subjects (``holdout``) is kept. :meth:`transform` returns a frame with columns ``z1`` ..
    ``zk`` for any estimator. In a :class:`sklearn.pipeline.Pipeline` each fold retrains the module.

    Args:
        module: untrained; each ``fit`` trains a copy. None for a perceptron with 16 hidden units and 4
            features.
        leaf: hazard family by which it is trained.
        epochs: maximum number of passes over the rows.
        batch_size: rows per mini-batch.
        learning_rate: of Adam.
        weight_decay: of Adam, coefficient of the squares of the module's parameters.
        holdout: share of held-out subjects for the choice of the epoch, in (0, 1): one fold of 1 / holdout.
        device: where it is trained.
        random_state: seed of the initial weights of the default module, of mini-batches and of held-out
            subjects.

    Attributes:
        module_: the trained module, on the CPU.
        loss_: mean negative log-likelihood of the held-out rows at the chosen epoch, in model units.
        epoch_: chosen epoch, from 1.
        feature_names_in_, n_features_in_: raw columns.

    >>> from sklearn.pipeline import make_pipeline
    >>> from sstorch import PrognosticTree, Surv, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> model = make_pipeline(TorchEncoder(epochs=3), PrognosticTree(depth=1))
    >>> model = model.fit(data.frame, Surv(data.time, data.event))
    >>> model.predict(data.frame[:2]).shape
    (2,)
    >>> list(model[0].transform(data.frame))
    ['z1', 'z2', 'z3', 'z4']
    """

    def __init__(
        self,
        module: nn.Module | None = None,
        leaf: LeafName = AUTO,
        epochs: int = 50,
        batch_size: int = 128,
        learning_rate: float = 0.01,
        weight_decay: float = 1e-4,
        holdout: float = 0.2,
        device: str = "cpu",
        random_state: int = 0,
    ) -> None:
        self.module = module
        self.leaf = leaf
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.holdout = holdout
        self.device = device
        self.random_state = random_state

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Train a copy of the module.

        Args:
            X: as for :meth:`SoftSurvivalTree.fit <sstorch.SoftSurvivalTree.fit>`.
            y: as there, with one event.
            sample_weight: as there.

        Raises:
            DataError: the data are invalid.
            ConfigError: a parameter is out of range, or the module does not map (n, p) to (n, k).
            TrainingError: no epoch has a finite loss.
        """
        data = training_rows(X, y, sample_weight)
        data.check_causes(False)
        seed = check_integer("random_state", self.random_state, 0)
        check_integer("epochs", self.epochs, 1)
        check_integer("batch_size", self.batch_size, 1)
        settings = BatchSettings.check(depth=0, leaf=self.leaf, device=self.device)
        settings = settings.for_cause(None, data.n_events)
        self.preprocessor_ = Preprocessor(Schema.of(data.frame)).fit(data.frame, data.uneven_weight)
        x = self.preprocessor_.transform(data.frame)
        tree, sample = stack_splits([data], [x], self.preprocessor_, settings)
        module = self._untrained(x.shape[1], seed)
        z = self._features(module, torch.as_tensor(x[:2]))
        head = SoftTree(
            z.shape[1],
            0,
            tree.family,
            batch_shape=(1,),
            device=self.device,
            dtype=torch.float64,
            start="zeros",
        )
        start_leaves(head, sample)
        with threads_for(self.batch_size * x.shape[1]):
            self._train(module, head, torch.as_tensor(x, device=self.device), sample, self._held_out(data))
        self.feature_names_in_ = np.asarray(data.feature_names, dtype=object)
        self.n_features_in_ = len(data.feature_names)
        self.n_features_out_ = z.shape[1]
        return self

    def transform(self, X: object) -> pd.DataFrame:
        """Compute the features ``z1`` .. ``zk`` of rows, with the index of ``X``."""
        check_is_fitted(self, "module_")
        x = torch.as_tensor(self.preprocessor_.transform(self._cleaned(X)))
        with torch.no_grad():
            z = self._features(self.module_, x).numpy()
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(z, columns=self.get_feature_names_out(), index=index)

    def get_feature_names_out(self, input_features: object = None) -> Any:
        """Names of the features, ``z1`` .. ``zk``."""
        check_is_fitted(self, "module_")
        return np.array([f"z{k}" for k in range(1, self.n_features_out_ + 1)], dtype=object)

    def save(self, path: str | Path) -> None:
        """Write trained parameters and preprocessing to a folder, without pickle and the module's code.

        Raises:
            ConfigError: the folder cannot be written.
        """
        check_is_fitted(self, "module_")
        state = {
            "preprocessing": self.preprocessor_.to_dict(),
            "feature_names": [str(name) for name in self.feature_names_in_],
            "n_features_out": self.n_features_out_,
            "loss": self.loss_,
            "epoch": self.epoch_,
        }
        write_folder(Path(path), _FORMAT, _FORMAT_VERSION, state, dict(self.module_.state_dict()))

    @classmethod
    def load(cls, path: str | Path, module: nn.Module | None = None) -> Self:
        """Load an encoder written by :meth:`save`.

        Args:
            path: folder.
            module: a module with the saved architecture; None for the default one.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
            ConfigError: the module has other parameters.
        """
        state, tensors = read_folder(Path(path), _FORMAT, _FORMAT_VERSION)
        with reading(Path(path)):
            encoder = cls(module)
            encoder.preprocessor_ = Preprocessor.from_dict(state["preprocessing"])
            encoder.feature_names_in_ = np.array([str(name) for name in state["feature_names"]], object)
            encoder.n_features_in_ = len(encoder.feature_names_in_)
            encoder.n_features_out_ = int(state["n_features_out"])
            encoder.loss_, encoder.epoch_ = float(state["loss"]), int(state["epoch"])
        trained = encoder._untrained(len(encoder.preprocessor_.features), 0)
        try:
            trained.load_state_dict(tensors)
        except RuntimeError as error:
            raise ConfigError(f"module is not the one that was saved: {error}") from error
        encoder.module_ = trained.eval()
        return encoder

    # ------------------------------------------------------------------ internals

    @property
    def _schema(self) -> Schema:
        check_is_fitted(self, "module_")
        return self.preprocessor_.schema

    def _untrained(self, n_features: int, seed: int) -> nn.Module:
        """A copy of the module, or the default one, in double precision."""
        if self.module is not None:
            return copy.deepcopy(self.module).double()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            layers = nn.Linear(n_features, 16), nn.Tanh(), nn.Linear(16, 4), nn.Sigmoid()
            return nn.Sequential(*layers).double()

    @staticmethod
    def _features(module: nn.Module, x: Tensor) -> Tensor:
        try:
            z = module(x)
        except RuntimeError as error:
            raise ConfigError(f"module does not take encoded columns, (n, {x.shape[1]}): {error}") from error
        if not isinstance(z, Tensor) or z.ndim != 2 or len(z) != len(x):
            raise ConfigError(f"module must map (n, {x.shape[1]}) to (n, k) features")
        return z

    def _train(
        self, module: nn.Module, head: SoftTree, x: Tensor, sample: Sample, held_out: BoolArray
    ) -> None:
        """Train module and head; keep the module at the epoch with the lowest loss on the held-out rows."""
        module.to(x.device)
        parts: list[dict[str, Any]] = [
            {"params": list(module.parameters()), "weight_decay": self.weight_decay},
            {"params": list(head.parameters())},
        ]
        adam = torch.optim.Adam(parts, lr=self.learning_rate)
        draws = np.random.default_rng(self.random_state)
        kept, outside = np.flatnonzero(~held_out), torch.as_tensor(np.flatnonzero(held_out), device=x.device)
        best, state, self.epoch_ = np.inf, None, 0
        for epoch in range(1, self.epochs + 1):
            module.train()
            for rows in np.array_split(draws.permutation(kept), max(1, len(kept) // self.batch_size)):
                adam.zero_grad()
                self._loss(module, head, x, sample, torch.as_tensor(rows, device=x.device)).backward()
                adam.step()
            module.eval()
            with torch.no_grad():
                loss = float(self._loss(module, head, x, sample, outside))
            if loss < best:  # nan is not
                best, state, self.epoch_ = loss, copy.deepcopy(module.state_dict()), epoch
        if state is None:
            raise TrainingError(
                "no epoch has a finite loss on the rows held out; try a smaller learning_rate"
            )
        module.load_state_dict(state)
        self.loss_, self.module_ = best, module.cpu().eval()

    def _loss(self, module: nn.Module, head: SoftTree, x: Tensor, sample: Sample, rows: Tensor) -> Tensor:
        """Weighted mean negative log-likelihood of some rows."""
        part = sample.columns(rows, DesignMatrix(self._features(module, x[rows])[None], (1,)))
        losses = leaf_losses(head, part, [1])[0, 0]
        return (part.weight[0] * losses).sum() / part.weight.sum()

    def _held_out(self, data: SurvivalData) -> BoolArray:
        """Rows of the subjects that are held out, stratified by event, (n,)."""
        if not 0 < self.holdout < 1:
            raise ConfigError(f"holdout must be a share in (0, 1), got {self.holdout!r}")
        n_folds = max(2, round(1 / self.holdout))
        return np.asarray(folds_of(data, n_folds, self.random_state) == 0)
