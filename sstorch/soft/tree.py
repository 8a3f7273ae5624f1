"""The scikit-learn front of the soft survival tree."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch.base import CurveKind
from sstorch.checks import check_device
from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.preprocessing import Categorical, Numeric
from sstorch.exceptions import ConfigError, DataWarning, FormatError
from sstorch.files import read_folder, write_folder
from sstorch.monitoring import History, ProgressBar
from sstorch.nn import FAMILIES, PREDICTIONS, HazardFamily, Prediction, SoftTree, Spline, make_family
from sstorch.objective import L2Parity
from sstorch.optim import Checkpoint, Nodec, Trainer
from sstorch.soft.batch import TrainedBatch, train_batch
from sstorch.soft.reading import ReadableTree, node_table
from sstorch.soft.settings import BatchSettings


def tree_log_likelihood(
    module: SoftTree,
    prediction: Prediction,
    x: Tensor,
    time: FloatArray,
    event: npt.NDArray[np.bool_],
    entry: FloatArray | None = None,
) -> float:
    """Mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x), in original units.

    Args:
        module: without batch dimension.
        prediction: ``"hbp"`` or ``"mixture"``.
        x: encoded features, shape (n, p).
        time: shape (n,).
        event: shape (n,).
        entry: shape (n,); None if all rows were observed from time zero.
    """

    def at(times: FloatArray) -> Tensor:
        return torch.as_tensor(times, device=x.device)[:, None]

    with torch.no_grad():
        hazard = module.cumulative_hazard(x, at(time), prediction)[:, 0]
        log_hazard = module.log_hazard(x, at(time), prediction)[:, 0]
        if entry is not None:
            hazard = hazard - module.cumulative_hazard(x, at(entry), prediction)[:, 0]
    return metrics.log_likelihood(event, hazard.cpu().numpy(), log_hazard.cpu().numpy())


FORMAT = "sstorch.soft_survival_tree"
FORMAT_VERSION = 3

# Parameters that only training reads and that need not be plain values are not kept.
_KEPT = {
    "n_starts": int,
    "init": str,
    "ridge": float,
    "gate_ridge": float,
    "fused": float,
    "holdout": float,
    "gate_sparsity": float,
    "prediction": str,
    "missing_numbers": str,
    "missing_categories": str,
}


def save_tree(estimator: SoftSurvivalTree, folder: Path) -> None:
    """Write a fitted tree into ``folder``, which is made if missing.

    Raises:
        ConfigError: if the folder cannot be written, or the leaf is a family that is not in the registry,
            which no file could rebuild.
    """
    module = estimator.module_
    family = module.family
    if family.name not in FAMILIES or type(FAMILIES[family.name]()) is not type(family):
        raise ConfigError(
            f"leaf family {type(family).__name__} is not registered and could not be loaded again; "
            "put @register_family above its class"
        )
    state = {
        "leaf": {"name": family.name, "options": family.options()},
        "parameters": {
            # Of the fitted tree itself: parameters may have been set anew since.
            "depth": module.topology.depth,
            "dtype": str(module.log_time_scale.dtype).removeprefix("torch."),
            **{name: kind(getattr(estimator, name)) for name, kind in _KEPT.items()},
        },
        "preprocessing": estimator.preprocessor_.to_dict(),
        "feature_names": [str(name) for name in estimator.feature_names_in_],
        "event_times": estimator.event_times_.tolist(),
        "zero_time": estimator.zero_time_,
        "objective": estimator.objective_,
        "node_table": _split_table(estimator.node_table_),
        "metrics": {str(name): float(value) for name, value in estimator.metrics_.items()},
    }
    write_folder(folder, FORMAT, FORMAT_VERSION, state, module.state_dict())


def load_tree(kind: type[SoftSurvivalTree], folder: Path, device: str) -> SoftSurvivalTree:
    """Read a tree of class ``kind`` written by :func:`save_tree`; its ``history_`` is empty.

    ``trainer``, ``random_state`` and ``verbose`` are those of a new estimator: they are not kept.

    Raises:
        FormatError: files are missing, altered or of an unknown format version.
        ConfigError: the device does not exist.
    """
    check_device(device)
    state, tensors = read_folder(folder, FORMAT, FORMAT_VERSION)
    try:
        leaf = make_family(state["leaf"]["name"], **state["leaf"]["options"])
        estimator = kind(leaf=leaf, device=device, **state["parameters"])
        preprocessor = Preprocessor.from_dict(state["preprocessing"])
        constants = {name.removeprefix("family."): tensor for name, tensor in tensors.items()}
        module = SoftTree(
            len(preprocessor.feature_names_out),
            estimator.depth,
            leaf.like(constants),
            device=device,
            dtype=tensors["log_time_scale"].dtype,
        )
        module.load_state_dict(tensors)
        estimator.event_times_ = np.array(state["event_times"], dtype=np.float64)
        estimator.zero_time_ = float(state["zero_time"])
        estimator.objective_ = float(state["objective"])
        estimator.node_table_ = _join_table(state["node_table"])
        estimator.metrics_ = {str(name): float(value) for name, value in state.get("metrics", {}).items()}
        names = [str(name) for name in state["feature_names"]]
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{folder} is incomplete or altered: {error}") from error
    estimator.module_ = module
    estimator.preprocessor_ = preprocessor
    estimator.history_ = History()
    estimator.feature_names_in_ = np.asarray(names, dtype=object)
    estimator.n_features_in_ = len(names)
    return estimator


def _split_table(table: pd.DataFrame) -> dict[str, Any]:
    values = table.astype(object).where(table.notna(), None)
    return {"node": [int(node) for node in table.index], **{str(name): list(values[name]) for name in values}}


def _join_table(columns: dict[str, list[Any]]) -> pd.DataFrame:
    table = pd.DataFrame(columns).set_index("node")
    return table.astype({name: np.float64 for name in table.columns if name not in ("rows", "events")})


# Elements of the largest intermediate of a prediction; rows are taken in chunks that stay below. Two MiB stay
# in the cache, which thirty do not.
_CHUNK_ELEMENTS = 2**18
# What one row of a quantile or of a restricted mean counts: it takes 512 elements, but many small operations,
# which fewer rows at a time would repeat too often.
_QUANTILE_ELEMENTS = 32


class SoftSurvivalTree(ReadableTree):
    """Soft survival tree: soft multivariate splits, a parametric survival model in each leaf.

    A person's prediction comes from one leaf, that of the most probable branch at every gate. ``n_starts``
    trees are trained as one batch and the one with the lowest training objective is kept, or with the lowest
    loss on the rows that ``holdout`` leaves out.

    Args:
        depth: gates on every path, 0 (no gate: a plain parametric model) to 6.
        leaf: name of a hazard family (``"log_logistic"``, ``"weibull"``, ``"spline_po"`` ...) or a family
            object such as ``Spline(scale="odds", knots=3)``.
        n_starts: initial solutions tried.
        trainer: ``"nodec"`` (node-based decomposition), ``"joint"`` (all parameters at once),
            ``"nodec+joint"`` or ``"adam"``, or settings such as ``Nodec(eps="eps_ordered",
            macro_iterations=5)``. The two names with a decomposition drop the worse half of the starts
            after three macro iterations (``Race()``); ``Nodec()`` trains all to the end.
        init: initial solutions: ``"kmeans"``, ``"random"``, ``"greedy"`` (hard trees grown by log-rank
            splits), ``"grown"`` (level by level: leaves are split where their own model fits worst, and all
            is trained before the next level), or ``"cox"`` for spline leaves.
        ridge: coefficient of (1/2) ||gamma||^2 over the slopes of the leaves, >= 0.
        gate_ridge: coefficient of (1/2) ||w||^2 over the weights of the gates, >= 0.
        fused: coefficient of (1/2) sum_n ||theta_n - mean theta||^2 over slopes and shapes, >= 0.
        gate_sparsity: coefficient of sum_j ||w_.j||, the group lasso over the weights of each encoded feature
            in all gates, >= 0: features that do not help leave the gates. Best with
            ``trainer="nodec+joint"``, since the regressions that rebalance gates in the decomposition do not
            know of it.
        holdout: share of the training rows, stratified by event, that is not trained on: each tree is kept at
            the point of its training, and the start is chosen, with the lowest loss there. 0 trains on all.
        n_shards: training works through the rows in so many parts, which bounds its memory; processes of an
            initialised ``torch.distributed`` share them, and with the same number train the same tree.
        prediction: ``"hbp"``, the leaf of the highest-branch-probability path, or ``"mixture"``, the average
            of all leaves' curves by their probabilities.
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        dtype: ``"float64"`` or ``"float32"``.
        random_state: seed; the same seed gives the same tree on the same machine.
        verbose: 1 shows progress.
        missing_numbers: what replaces a missing number, ``"mean"`` or ``"median"`` of the training rows.
        missing_categories: what a missing category becomes, ``"zeros"`` (none of the column's categories) or
            the ``"most_frequent"`` one of the training rows.
        fairness: penalty on differences between the survival curves of sensitive groups: None, ``"l2"``
            (leaves are trained with it), ``"l2_relaxed"`` (gates, too), or settings such as
            ``L2Parity(gates="relaxed")``. ``fit`` then needs the groups.
        rho: its coefficient, >= 0: of the mean over pairs of persons of different groups of the integral of
            (S_i(t) - S_j(t))^2 over the observed times, so in nats per unit of time.

    Attributes:
        module_: the trained :class:`~sstorch.nn.SoftTree`, without batch dimension.
        preprocessor_: fitted on the training rows.
        history_: records of the training of the start that was kept.
        objective_: its training objective.
        event_times_: distinct training event times, original units, increasing.
        zero_time_: what replaces a time of zero when rows are scored: half the smallest training time.
        node_table_: training rows, events, median and mean predicted survival by node, by heap number.
        metrics_: scores by name that are to be kept with the tree, such as those of a cross-validation; empty
            until they are put there.
        feature_names_in_: raw feature names.
        n_features_in_: their number.

    References:
        Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis".

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = SoftSurvivalTree(depth=1, n_starts=2, init="random", random_state=0)
    >>> tree = tree.fit(data.frame, (data.time, data.event))
    >>> tree.predict_survival_function(data.frame[:2], times=[365.0, 730.0]).shape
    (2, 2)
    """

    history_: History
    objective_: float
    feature_names_in_: npt.NDArray[np.object_]
    n_features_in_: int

    def __init__(
        self,
        depth: int = 2,
        leaf: str | HazardFamily = "log_logistic",
        n_starts: int = 20,
        trainer: str | Trainer = "nodec",
        init: str = "kmeans",
        ridge: float = 1e-3,
        gate_ridge: float = 1e-4,
        fused: float = 0.0,
        prediction: Prediction = "hbp",
        device: str = "cpu",
        dtype: str = "float64",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
        missing_numbers: Numeric = "mean",
        missing_categories: Categorical = "zeros",
        holdout: float = 0.0,
        n_shards: int = 1,
        gate_sparsity: float = 0.0,
        fairness: str | L2Parity | None = None,
        rho: float = 0.0,
    ) -> None:
        self.depth = depth
        self.leaf = leaf
        self.n_starts = n_starts
        self.trainer = trainer
        self.init = init
        self.ridge = ridge
        self.gate_ridge = gate_ridge
        self.fused = fused
        self.prediction = prediction
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.missing_numbers = missing_numbers
        self.missing_categories = missing_categories
        self.holdout = holdout
        self.n_shards = n_shards
        self.gate_sparsity = gate_sparsity
        self.fairness = fairness
        self.rho = rho

    @classmethod
    def paper(cls, depth: int = 2, leaf: str | HazardFamily = "log_logistic", **parameters: Any) -> Self:
        """The tree with the published settings: ``Nodec.paper()``, ridge 1e-3 on leaves, gates free.

        Starts are from ``init="cox"`` for spline leaves and random for the others. The published splines can
        rise: they are ``Spline(..., monotone=False)``.

        Args:
            depth: gates on every path, 0 to 6.
            leaf: hazard family.
            parameters: other parameters; they win over the published ones.

        References:
            Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis".
        """
        published: dict[str, Any] = {
            "n_starts": 20,
            "trainer": Nodec.paper(),
            "init": "cox" if isinstance(make_family(leaf), Spline) else "random",
            "ridge": 1e-3,
            "gate_ridge": 0.0,
            "gate_sparsity": 0.0,
            "fused": 0.0,
            "holdout": 0.0,
            "prediction": "hbp",
        }
        return cls(depth, leaf, **(published | parameters))

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        X: object,
        y: object,
        sample_weight: object = None,
        entry: object = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        sensitive: object = None,
    ) -> Self:
        """Train ``n_starts`` trees and keep the one with the lowest training objective.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or
                array (n, p).
            y: structured array with an event and a time field, a (time, event) tuple, or a DataFrame with the
                columns ``time`` and ``event``.
            sample_weight: (n,), >= 0.
            entry: (n,), times from which rows were observed (left truncation), below their own times; None if
                all were from time zero.
            checkpoint: file that is written after every pass of the training. If it is there already, from a
                call with the same parameters and data that was cut short, training goes on from it and ends
                with the same tree; see :class:`~sstorch.optim.Checkpoint`.
            sensitive: group of each row (n,), for ``fairness``; or the name of a column of ``X``, which then
                is no feature. To have it as a feature too, give its values: ``sensitive=X["sex"]``.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
            ConfigError: a parameter has a value that does not exist, or the checkpoint belongs to other
                parameters or data.
            FormatError: the checkpoint is truncated or altered.
        """
        data = SurvivalData(X, y, sample_weight=sample_weight, entry=entry, sensitive=sensitive)
        if not data.sample_weight.all():
            data = data.subset(data.sample_weight > 0)
        callbacks = [ProgressBar()] if self.verbose else []
        batch = train_batch([data], self.settings(), callbacks=callbacks, checkpoint=checkpoint)
        return self.adopt(batch, data, 0, batch.best_start(0))

    def settings(self) -> BatchSettings:
        """The checked parameters, as the batch trainer takes them."""
        if self.prediction not in PREDICTIONS:
            raise ConfigError(f"prediction must be one of {', '.join(PREDICTIONS)}, got {self.prediction!r}")
        names = set(BatchSettings.__dataclass_fields__) - {"seed"}
        values = {name: getattr(self, name) for name in names}
        return BatchSettings.check(**values, seed=self._seed())

    def adopt(
        self, batch: TrainedBatch, data: SurvivalData, split: int, start: int, setting: int = 0
    ) -> Self:
        """Become the tree of one problem of a trained batch.

        Args:
            batch: trained trees.
            data: training rows of the split.
            split: number of the split.
            start: number of the start.
            setting: position of its coefficients in ``batch.coefficients``.
        """
        position = batch.position(split, start, setting)
        self.module_ = batch.tree.select(position)
        self.preprocessor_ = batch.preprocessors[split]
        self.history_ = batch.history.of_problem(position)
        self.objective_ = float(batch.objective[position])
        self.event_times_ = np.unique(data.time[data.event])
        self.zero_time_ = data.zero_time
        self.feature_names_in_ = np.asarray(data.feature_names, dtype=object)
        self.n_features_in_ = len(data.feature_names)
        self.node_table_ = node_table(self, data)
        self.metrics_: dict[str, float] = {}
        return self

    # ------------------------------------------------------------------ predict

    def predict(self, X: object) -> FloatArray:
        """Risk of each row: expected number of events up to the last training event time.

        Returns:
            Sum of H(t | x) over the distinct training event times, shape (n,); higher = earlier event.
        """
        check_is_fitted(self, "module_")
        times = self._times(self.event_times_)
        return self._by_chunk(
            X,
            len(times),
            lambda x: self.module_.cumulative_hazard(x, times, self.prediction).sum(-1),
        )

    @overload
    def predict_hazard_function(
        self, X: object, times: npt.ArrayLike | None = None, as_frame: Literal[False] = False
    ) -> FloatArray: ...

    @overload
    def predict_hazard_function(
        self, X: object, times: npt.ArrayLike | None = None, *, as_frame: Literal[True]
    ) -> pd.DataFrame: ...

    def predict_hazard_function(
        self, X: object, times: npt.ArrayLike | None = None, as_frame: bool = False
    ) -> FloatArray | pd.DataFrame:
        """Hazard h(t | x) per time unit; arguments and shape as :meth:`predict_survival_function`."""
        return self._predict_curves("hazard", X, times, as_frame)

    def predict_leaf_proba(self, X: object) -> FloatArray:
        """Probability of each leaf, shape (n, L), leaves from left to right; rows sum to one."""
        check_is_fitted(self, "module_")
        return self._by_chunk(
            X, 2**self.module_.topology.depth, lambda x: self.module_.log_leaf_probability(x).exp().mT
        )

    def apply(self, X: object) -> IntArray:
        """Leaf of each row's most probable path, 0 .. L - 1 from left to right, shape (n,)."""
        check_is_fitted(self, "module_")
        return self._by_chunk(X, 2**self.module_.topology.depth, self.module_.apply_leaf).astype(np.int64)

    def predict_quantile(self, X: object, q: float = 0.5) -> FloatArray:
        """Time by which a share ``q`` has had the event; the median by default.

        Returns:
            shape (n,), original units; +inf where the survival function stays above 1 - q.

        Raises:
            ConfigError: ``q`` is not in (0, 1).
        """
        check_is_fitted(self, "module_")
        return self._by_chunk(X, _QUANTILE_ELEMENTS, lambda x: self.module_.quantile(x, q, self.prediction))

    def predict_rmst(self, X: object, tau: float) -> FloatArray:
        """Restricted mean survival time: the area under S(t | x) from 0 to ``tau``.

        Args:
            X: rows with the training columns.
            tau: > 0, original units; ``math.inf`` gives the mean, an extrapolation far beyond most follow-up.

        Returns:
            shape (n,), original units; +inf where ``tau`` is and the mean does not exist.

        Raises:
            ConfigError: ``tau`` is not positive.
        """
        check_is_fitted(self, "module_")
        return self._by_chunk(
            X, _QUANTILE_ELEMENTS, lambda x: self.module_.restricted_mean(x, tau, self.prediction)
        )

    def log_likelihood(self, X: object, y: object, entry: object = None) -> float:
        """Mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x), in original units."""
        data = self._scored(X, y, entry)
        entries = data.entry if data.entry.any() else None
        x = self._encode(data.frame)
        return tree_log_likelihood(self.module_, self.prediction, x, data.time, data.event, entries)

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves as scores need them, (n, n_times), times increasing.

        They are those of :meth:`predict_survival_function`. Only unconstrained splines can rise; where they
        do, the curve is replaced by its smallest value up to each of the times, and a DataWarning says for
        how many rows.
        """
        curves = np.asarray(self.predict_survival_function(X, times))
        if self.module_.family.can_rise:
            falling = np.minimum.accumulate(curves, axis=1)
            if n_rising := int((falling < curves).any(axis=1).sum()):
                warnings.warn(
                    f"{n_rising} of {len(curves)} curves rise: scored as their running minimum; "
                    "monotone=True has no such curves",
                    DataWarning,
                    stacklevel=3,
                )
            return falling
        return curves

    # ------------------------------------------------------------------ keep

    def save(self, path: str | Path) -> None:
        """Write the fitted tree into a folder: ``model.json`` and ``tensors.safetensors``, no pickle.

        ``metrics_`` goes with it.
        """
        check_is_fitted(self, "module_")
        save_tree(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> SoftSurvivalTree:
        """Read a tree written by :meth:`save`, onto the given device.

        ``trainer``, ``random_state`` and ``verbose`` are not kept: they say how to train, not what was
        trained.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        return load_tree(cls, Path(path), device)

    # ------------------------------------------------------------------ internals

    def _seed(self) -> int:
        try:
            state = check_random_state(self.random_state)
        except ValueError as error:
            raise ConfigError(
                "random_state must be an integer >= 0, None or a numpy RandomState, "
                f"got {self.random_state!r}"
            ) from error
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(state.randint(2**31 - 1))

    @property
    def _schema(self) -> Schema:
        return self.preprocessor_.schema

    def _times(self, values: FloatArray) -> Tensor:
        return torch.as_tensor(values, device=self.module_.log_time_scale.device)

    def _encode(self, X: object) -> Tensor:
        scale = self.module_.log_time_scale
        features = self.preprocessor_.transform(self._cleaned(X))
        return torch.as_tensor(features, device=scale.device, dtype=scale.dtype)

    def _by_chunk(self, X: object, row_elements: int, function: Any) -> npt.NDArray[Any]:
        """Apply a function of encoded rows chunk by chunk, within the memory budget."""
        x = self._encode(X)
        if self.prediction == "mixture":
            row_elements *= 2**self.module_.topology.depth
        size = max(1, _CHUNK_ELEMENTS // max(1, row_elements, x.shape[1]))
        out = np.empty(0)
        with torch.no_grad():
            for start in range(0, max(1, len(x)), size):
                part = function(x[start : start + size]).cpu().numpy()
                if start == 0:  # the result is filled in place: a list of parts would need its memory twice
                    out = np.empty((len(x), *part.shape[1:]), dtype=part.dtype)
                out[start : start + size] = part
        return out

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        check_is_fitted(self, "module_")
        functions = {
            "survival": self.module_.survival,
            "cumulative_hazard": self.module_.cumulative_hazard,
            "hazard": self.module_.hazard,
        }
        grid = self._times(times)
        return self._by_chunk(X, len(times), lambda x: functions[kind](x, grid, self.prediction))
