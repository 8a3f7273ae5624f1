"""Any torch module that returns distributions of event times, as a survival estimator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from typing_extensions import override

from sstorch._types import BoolArray
from sstorch.checks import check_device, check_integer, check_share, wording
from sstorch.data import Preprocessor, Schema, SurvivalData, folds_of
from sstorch.data.columns import to_pandas
from sstorch.data.surv import OutcomeType, as_surv
from sstorch.data.survival_data import fingerprint
from sstorch.exceptions import ConfigError, DataError, TrainingError
from sstorch.files import read_folder, reading, write_folder
from sstorch.fitted.estimator import SurvivalEstimator
from sstorch.fitted.model import EVENT, FittedModule, in_chunks, outcome_of_rows
from sstorch.monitoring import Callback, History, check_callbacks
from sstorch.nn.heads import DistributionModule
from sstorch.soft.settings import coefficient
from sstorch.threads import threads_for

_FORMAT, _FORMAT_VERSION = "sstorch.torch_survival", 5
_DTYPES = (None, "float32", "float64", torch.float32, torch.float64)
_REMEDY = "try a smaller lr, scale the inputs, or use dtype='float64'"
# Parameters that a file holds, and results that it does not.
_SAVED = ("epochs", "batch_size", "lr", "weight_decay", "holdout", "encode", "random_state")
_NOT_SAVED = ("module_", "history_")


class TorchSurvival(SurvivalEstimator):
    """Survival estimator of a torch module that returns a :class:`~sstorch.nn.SurvivalDistribution`.

    The module maps a batch of rows to the distribution of their event times, for instance by a
    :class:`~sstorch.nn.HazardHead` or :class:`~sstorch.nn.SoftTree` as its last layer; with competing causes
    to a dictionary with one distribution per cause, by number or name. ``fit`` trains a deep copy by the mean
    negative log-likelihood of mini-batches, for every type of outcome, and keeps the epoch with the lowest
    loss on the held-out subjects. Weights of the given module are starting values. Heads that are as
    constructed are initialised on the training rows; others keep their values.

    Args:
        module: a module, or a function that makes one from the number of encoded features (without encoding,
            the size of the second dimension of ``X``), called under ``random_state``.
        epochs: number of passes over the training rows.
        batch_size: maximum number of rows per mini-batch, in training and prediction.
        optimizer: name of a class of :mod:`torch.optim`, a class, or a function ``(parameters, lr=,
            weight_decay=)``. Frozen parameters (``requires_grad=False``) are not passed.
        lr: learning rate.
        weight_decay: passed to the optimizer if it is not 0.
        holdout: share of held-out subjects, in [0, .5]: one of 1 / holdout folds, stratified by event. 0
            keeps the last epoch.
        encode: encode the columns of a frame: numbers on [0, 1], one feature per category, missing values
            imputed. False passes ``X`` as it is: an array, tensor or memory map of any shape (n, ...), or a
            frame of numbers. Floating point values get the dtype of the module.
        device: device of training and prediction.
        dtype: ``"float32"`` or ``"float64"``, or those of torch; None for the dtype of the module.
        callbacks: :class:`~sstorch.monitoring.Callback` objects; a macro iteration is an epoch.
        random_state: seed of held-out subjects, mini-batches, dropout and the function ``module``.

    Attributes:
        module_: the trained module, in evaluation mode.
        loss_: mean negative log-likelihood of the held-out rows (without any, of the training rows) at the
            chosen epoch, original units.
        epoch_: chosen epoch, from 1.
        history_: :class:`~sstorch.monitoring.History`; ``macro_iterations`` has a row per epoch with training
            loss ``objective``, ``best_objective``, ``gradient_norm`` and ``held_out_loss``.
        preprocessor_, feature_names_in_, n_features_in_: with ``encode=True``.

    >>> from torch import nn
    >>> from sstorch import load_dataset
    >>> from sstorch.nn import HazardHead
    >>> data = load_dataset("gbsg2")
    >>> network = lambda p: nn.Sequential(nn.Linear(p, 16), nn.Tanh(), HazardHead(16, "log_logistic"))
    >>> model = TorchSurvival(network, epochs=5).fit(data.frame, data.y)
    >>> model.predict_survival_function(data.frame[:2], times=[365, 1825]).shape
    (2, 2)
    """

    def __init__(
        self,
        module: nn.Module | Callable[[int], nn.Module],
        *,
        epochs: int = 50,
        batch_size: int = 128,
        optimizer: str | Callable[..., torch.optim.Optimizer] = "AdamW",
        lr: float = 0.01,
        weight_decay: float = 0.01,
        holdout: float = 0.2,
        encode: bool = True,
        device: str = "cpu",
        dtype: str | torch.dtype | None = None,
        callbacks: Sequence[Callback] = (),
        random_state: int = 0,
    ) -> None:
        self.module = module
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.lr = lr
        self.weight_decay = weight_decay
        self.holdout = holdout
        self.encode = encode
        self.device = device
        self.dtype = dtype
        self.callbacks = callbacks
        self.random_state = random_state

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Train a copy of the module.

        Args:
            X: as in :meth:`SoftSurvivalTree.fit <sstorch.SoftSurvivalTree.fit>`, or an array (n, ...).
            y: outcome, a :class:`~sstorch.Surv` of any type.
            sample_weight: weights of the rows, (n,), >= 0; None for those of ``y``, or 1.

        Raises:
            DataError: the data are invalid.
            ConfigError: a parameter is out of range, or the module does not return distributions of the rows.
            TrainingError: the loss is not finite.
        """
        for name, least in (("epochs", 1), ("batch_size", 1), ("random_state", 0)):
            check_integer(name, getattr(self, name), least)
        for name in ("lr", "weight_decay"):
            coefficient(name, getattr(self, name))
        if self.holdout != 0 and check_share(self.holdout, "holdout") > 0.5:
            raise ConfigError(f"holdout must be a share in [0, .5], got {self.holdout!r}")
        if self.dtype not in _DTYPES:
            raise ConfigError(f"dtype must be 'float32', 'float64' or None, got {self.dtype!r}")
        check_device(self.device)
        check_callbacks(self.callbacks)
        whole = SurvivalData(X if self.encode else _outcomes_only(X), y, sample_weight=sample_weight)
        whole.warn_of_few_events()
        data = whole.followed()
        self._set_outcome(data)
        if self.encode:
            self.preprocessor_ = Preprocessor(Schema.of(data.frame)).fit(data.frame, data.uneven_weight)
            self.feature_names_in_ = np.asarray(data.feature_names, dtype=object)
            self.n_features_in_ = len(data.feature_names)
            x: Any = torch.as_tensor(self.preprocessor_.transform(data.frame))
        else:
            x = _array(X)[np.flatnonzero((whole.sample_weight > 0) & (whole.begin < whole.nominal_time))]
        held = np.zeros(len(data), dtype=bool)
        if self.holdout:
            held = np.asarray(folds_of(data, round(1 / self.holdout), self.random_state) == 0)
        self.in_features_ = int(x.shape[1])
        device = torch.device(self.device)
        threads = threads_for(self.batch_size * x.shape[1]) if self.encode else nullcontext()
        with torch.random.fork_rng([device] if device.type == "cuda" else []), threads:
            torch.manual_seed(self.random_state)
            self.module_ = self._built()
            x = x.to(self._model.like) if self.encode else x
            _initialize(self._model, x, data.subset(~held))
            self._train(x, data, held)
        self.module_.eval()
        return self

    @classmethod
    def wrap(
        cls, module: nn.Module, y: object = None, *, batch_size: int = 1024, device: str = "cpu"
    ) -> Self:
        """Make an estimator of a copy of a trained module, for evaluation, validation, or as a teacher.

        Args:
            module: trained; it receives ``X`` as it is (``encode=False``).
            y: outcome of the training rows: default times of predictions, event times of :meth:`predict`,
                names of competing causes; None without these.
            batch_size: rows per batch of predictions.
            device: of the predictions.

        Raises:
            ConfigError, DataError: torch does not see the device, or ``y`` is not an outcome.
        """
        check_device(device)
        estimator = cls(module, batch_size=batch_size, encode=False, device=device)
        estimator.module_ = copy.deepcopy(module).to(device).eval()
        estimator.event_times_, estimator.outcome_type_ = np.empty(0), OutcomeType()
        estimator.zero_time_ = None  # half the smallest time of the rows themselves
        if y is not None:
            rows = as_surv(y)
            estimator._set_outcome(SurvivalData(_outcomes_only(rows), rows))
        return estimator

    def save(self, path: str | Path) -> None:
        """Write weights, preprocessing and facts of the training to a folder, without pickle.

        The code of the module is not saved, nor are ``optimizer``, ``callbacks`` and ``device``.

        Raises:
            ConfigError: the folder cannot be written.
        """
        check_is_fitted(self, "module_")
        fitted = {name: each for name, each in vars(self).items() if name.endswith("_")}
        state = {
            "parameters": {name: np.asarray(getattr(self, name)).item() for name in _SAVED},
            "dtype": str(self._model.like.dtype).removeprefix("torch."),
            "fitted": {name: each for name, each in fitted.items() if name not in _NOT_SAVED},
        }
        tensors = {f"module.{name}": value.clone() for name, value in self.module_.state_dict().items()}
        write_folder(Path(path), _FORMAT, _FORMAT_VERSION, state, tensors)

    @classmethod
    def load(
        cls, path: str | Path, module: nn.Module | Callable[[int], nn.Module], device: str = "cpu"
    ) -> Self:
        """Load an estimator written by :meth:`save`.

        Args:
            path: folder.
            module: module of the saved architecture, or a function as in the constructor.
            device: of predictions.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
            ConfigError: the module has other parameters, or torch does not see the device.
        """
        check_device(device)
        state, tensors = read_folder(Path(path), _FORMAT, _FORMAT_VERSION)
        with reading(Path(path)):
            estimator = cls(module, device=device, dtype=state["dtype"], **state["parameters"])
            for name, value in state["fitted"].items():
                if not name.endswith("_") or name in _NOT_SAVED:
                    raise ValueError(f"{name} is no result of a fit")
                setattr(estimator, name, value)
        estimator.module_, estimator.history_ = estimator._built().eval(), History()
        try:
            estimator.module_.load_state_dict(
                {name.removeprefix("module."): value for name, value in tensors.items()}
            )
        except RuntimeError as error:
            raise ConfigError(f"module is not the one that was saved: {error}") from error
        return estimator

    @property
    @override
    def _schema(self) -> Schema:
        return self.preprocessor_.schema

    @property
    @override
    def _model(self) -> FittedModule:
        check_is_fitted(self, "module_")
        dtypes = (each.dtype for each in self.module_.parameters() if each.is_floating_point())
        like = torch.empty(0, device=self.device, dtype=next(dtypes, None))
        return FittedModule(self.module_, self.causes_ or (EVENT,), self.event_times_, self.batch_size, like)

    @override
    def _encode(self, X: object, warn: bool = False) -> Any:
        if not self.encode:
            return _array(X)
        frame = self._cleaned(X)
        with wording(rows=X):
            if warn:
                self.preprocessor_.warn_of_far_values(frame)
            return torch.as_tensor(self.preprocessor_.transform(frame)).to(self._model.like)

    @override
    def _frame(self, X: object) -> Any:
        return super()._frame(X) if self.encode else _outcomes_only(X)

    @override
    def _set_outcome(self, data: SurvivalData) -> None:
        super()._set_outcome(data)
        self.event_times_, self.n_samples_fit_ = data.event_times, len(data)
        self.training_rows_ = fingerprint(data) if self.encode else None

    def _built(self) -> nn.Module:
        """A copy of the module, or of the one that the function returns, on the device."""
        built = self.module if isinstance(self.module, nn.Module) else self.module(self.in_features_)
        if not isinstance(built, nn.Module):
            raise ConfigError(
                "module must be a torch.nn.Module, or a function that returns one, got "
                f"{type(built).__name__}"
            )
        dtype = getattr(torch, self.dtype) if isinstance(self.dtype, str) else self.dtype
        return copy.deepcopy(built).to(device=self.device, dtype=dtype)

    def _optimizer(self) -> torch.optim.Optimizer:
        make: Any = self.optimizer
        make = getattr(torch.optim, make, None) if isinstance(make, str) else make
        if not callable(make):
            raise ConfigError(
                "optimizer must be the name of a class of torch.optim, such as 'AdamW', or a class, got "
                f"{self.optimizer!r}"
            )
        parameters = [each for each in self.module_.parameters() if each.requires_grad]
        if not parameters:
            raise ConfigError("module must have a parameter with requires_grad=True, got none")
        decay = {"weight_decay": self.weight_decay} if self.weight_decay else {}
        optimizer: torch.optim.Optimizer = make(parameters, lr=self.lr, **decay)
        return optimizer

    def _train(self, x: Any, data: SurvivalData, held: BoolArray) -> None:
        """Train on rows that are not held out; keep the epoch with the lowest loss of those that are."""
        model, optimizer, draws = self._model, self._optimizer(), np.random.default_rng(self.random_state)
        kept, outside = np.flatnonzero(~held), np.flatnonzero(held)
        outcome = outcome_of_rows(data, model.like.device)
        weight = data.sample_weight / data.sample_weight[kept].max()  # sums of the largest are not finite
        weights = torch.as_tensor(weight / weight[kept].mean(), device=model.like.device)
        best, state, self.history_ = np.inf, dict[str, Any](), History()

        def losses(rows: Any) -> Tensor:
            return weights[rows] * model.losses(x[rows], {name: part[rows] for name, part in outcome.items()})

        def loss(rows: Any) -> Tensor:
            optimizer.zero_grad()
            value = losses(rows).mean()
            value.backward()
            return value.detach()

        for callback in self.callbacks:
            callback.on_train_begin(self.module_, self.epochs)
        for epoch in range(1, self.epochs + 1):
            self.module_.train()
            order, total = draws.permutation(kept), 0.0
            for rows in np.array_split(order, -(-len(order) // self.batch_size)):
                total += float(optimizer.step(partial(loss, rows))) * len(rows)  # type: ignore[arg-type]
            self.module_.eval()
            finite = all(bool(each.isfinite().all()) for each in self.module_.parameters())
            if not (finite and np.isfinite(total)):
                raise TrainingError(f"the loss or a parameter is not finite in epoch {epoch}: {_REMEDY}")
            score = total / len(order)
            if len(outside):
                found = in_chunks(losses, self.batch_size, outside)
                score = float(found.sum() / weights[outside].sum())
            if score < best or not len(outside):
                best, self.epoch_, state = score, epoch, copy.deepcopy(self.module_.state_dict())
            gradients = [each.grad for each in self.module_.parameters() if each.grad is not None]
            self.history_.add_macro_iteration(
                problem=0,
                macro_iteration=epoch,
                objective=total / len(order),
                best_objective=best,
                gradient_norm=max(float(each.abs().max()) for each in gradients if each.numel()),
                **({"held_out_loss": score} if len(outside) else {}),
            )
            for callback in self.callbacks:
                callback.on_macro_iteration(epoch, self.history_)
        for callback in self.callbacks:
            callback.on_train_end(self.history_)
        if not np.isfinite(best):
            raise TrainingError(f"the held-out loss is finite in no epoch: {_REMEDY}")
        self.module_.load_state_dict(state)
        self.loss_ = best


def _initialize(model: FittedModule, x: Any, data: SurvivalData) -> None:
    """Initialise the heads that are as constructed: by all events, then a head of one cause by its events."""
    rows = {"time": data.nominal_time, "entry": data.entry, "weight": data.sample_weight}
    parts = {name: torch.as_tensor(part) for name, part in rows.items()}
    modules = model.module.modules()
    heads = [each for each in modules if isinstance(each, DistributionModule) and not each.initialized]
    for head in heads:
        head.initialize(event=torch.as_tensor(data.event), **parts)
    model.module.eval()
    with torch.no_grad():  # checks the module, and gives lazy layers their sizes
        found = model.distributions(x[:2])
    for number, part in enumerate(found if model.competing else [], 1):
        for head in (each for each in heads if each.log_time_scale is part.log_time_scale):
            head.initialize(event=torch.as_tensor(data.cause == number), **parts)


def _array(X: object) -> Any:
    """Rows of any shape (n, ...)."""
    X = to_pandas(X)
    if isinstance(X, pd.DataFrame):
        try:
            return X.to_numpy(dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"X must have numbers only with encode=False, got {error}") from error
    rows: Any = X if hasattr(X, "shape") else np.asarray(X)
    if len(rows.shape) < 2:
        raise DataError(f"X must be an array of rows, (n, ...), got shape {tuple(rows.shape)}")
    return rows


def _outcomes_only(X: Any) -> pd.DataFrame:
    """A column in place of rows that only the module reads; a frame keeps its labels."""
    index = X.index if isinstance(X, pd.DataFrame) else range(len(X))
    return pd.DataFrame({"X": 0.0}, index=index)
