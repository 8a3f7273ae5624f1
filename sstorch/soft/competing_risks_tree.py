"""A soft tree for competing risks: one set of gates, the hazard of every cause in each leaf."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import override

from sstorch._types import FloatArray, IntArray
from sstorch.base import CurveKind, IncidenceEstimator, group_frame, median_event_time
from sstorch.checks import check_device
from sstorch.data import OutcomeType, Schema, SurvivalData
from sstorch.data.encodings import NumericEncodings
from sstorch.data.oddities import Oddity, few_events, tell
from sstorch.data.persons import CONSTANT_COVARIATES
from sstorch.data.preprocessing import Categorical, Numeric
from sstorch.data.time_unit import check_time_unit
from sstorch.exceptions import ConfigError, DataError, FormatError
from sstorch.files import checksum, read_folder, reading, write_folder
from sstorch.groups.competing_validation import CompetingGroupValidation
from sstorch.groups.estimators import RESULTS, CauseGroups, LeafOf
from sstorch.groups.recalibration import Recalibrate, Recalibration
from sstorch.groups.resampling import Partition, resamples
from sstorch.metrics.weights import WeightKind
from sstorch.nn import GateParameters, HazardFamily, Topology, make_family
from sstorch.optim import Engine, distil_gates
from sstorch.soft.batch import TrainedBatch, fit_preprocessors, gate_columns, train_batch, training_rows
from sstorch.soft.fitted import FittedTree
from sstorch.soft.incidence import cumulative_incidence, log_time_panels
from sstorch.soft.reading import rules_text, shown_leaves, slope_lines
from sstorch.soft.rules import Explanation, explain_row
from sstorch.soft.settings import MIN_EVENTS
from sstorch.soft.tree import SoftSurvivalTree
from sstorch.soft.tree_sample import TreeSample, leaves_of_splits

FORMAT, FORMAT_VERSION = "sstorch.competing_risks_tree", 1
# Of rows whose hazard underflows.
_LEAST_HAZARD = 1e-12
# Terms of a rule that a summary writes out.
_SUMMARY_TERMS = 4


@dataclass(frozen=True)
class CauseExplanation(Explanation):
    """Path of one person, and what adds to the hazard of one of several causes.

    ``median`` and ``survival`` are those of a world without the other causes, and not printed.

    Attributes:
        cause: name of the cause.
        incidence: predicted, a row for each cause, a column for each of some times.
    """

    cause: str = ""
    incidence: pd.DataFrame = field(default_factory=pd.DataFrame)

    @override
    def _prediction(self) -> str:
        parts = []
        for name, row in self.incidence.iterrows():
            at = ", ".join(f"F({time:g}) = {value:.3f}" for time, value in row.items())
            parts.append(f"{name} {at}")
        return f"hazard of {self.cause}; predicted incidence of {'; of '.join(parts)}{self._condition}"


class CompetingRisksTree(CauseGroups, IncidenceEstimator):
    """Soft tree for competing risks: one set of gates, and in each leaf a hazard for every cause.

    Its gates divide people into groups that differ in what happens to them, and its leaves say how fast each
    cause comes: with cause-specific hazards h_k the likelihood is a product over causes, in each of which the
    events of the others are censored. So each cause has a :class:`~sstorch.SoftSurvivalTree` of its own, and
    all have the same gates. What a person can expect is the cumulative incidence of a cause, the integral of
    h_k S, where S falls by all causes together; 1 - S_k of a single cause would tell of a world in which the
    others do not exist.

    Gates are distilled, as those of ``SoftSurvivalTree()``, from one regression a cause without gates: from
    log cumulative hazards of the rows at the mean log time, each with the weight of its number of events.

    Args:
        depth: gates on every path, 0 (no gate: a regression of every cause) to 6.
        leaf: hazard family, for all causes or by name of the cause. ``"auto"`` is ``"spline_ph"`` for a cause
            of 150 events or more, whose curve is then free, and ``"log_logistic"`` for a rarer one. Families
            whose curves can rise are refused.
        ridge: coefficient of (1/2) ||gamma||^2 over the slopes of the leaves, >= 0.
        fused: as in :class:`~sstorch.SoftSurvivalTree`, and so the following.
        numeric: what the leaves see of numeric columns.
        gate_numeric: what the gates see of them.
        interactions: pairs of columns whose products the leaves see.
        roughness: of curves.
        offset: of the levels of the leaves.
        fused_shape: of their shapes.
        gate_features: columns of a gate.
        min_leaf: least share of the training rows in a leaf.
        missing_numbers: what replaces a missing number.
        missing_categories: what replaces a missing category.
        device: ``"cpu"`` or a CUDA device.
        dtype: ``"float64"`` or ``"float32"``.
        engine: what trains, as of :class:`~sstorch.SoftSurvivalTree`.
        time_unit: unit of the times, such as ``"days"``, as texts and figures name it; None for that of the
            data.

    Attributes:
        trees_: tree of each cause, by name; its survival function is that of a world without the others.
        causes_: names of the K causes.
        event_times_: distinct times of any event, original units, increasing.
        zero_time_: what replaces a time of zero when rows are scored.
        time_unit_: unit of the times; None if not known.
        horizon_: median of the observed event times, the time at which :meth:`predict` gives incidences.
        group_table_: :meth:`group_table` of the training rows, or of those of the recalibration.
        group_validation_: result of :meth:`validate_groups`, saved with the tree.
        stability_: result of :meth:`stability`.
        time_varying_: whether subjects have several start-stop rows, so that one row does not determine what
            happens later.
        feature_names_in_: raw feature names.
        n_features_in_: their number.

    References:
        Prentice, Kalbfleisch, Peterson, Flournoy, Farewell and Breslow (1978), "The analysis of failure times
        in the presence of competing risks", Biometrics 34, 541-554.

    >>> import numpy as np
    >>> from sstorch import Surv
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 2))
    >>> first, second = rng.exponential(np.exp(x[:, 0])), rng.exponential(np.exp(x[:, 1]))
    >>> cause = np.where(first < second, 1, 2) * (np.minimum(first, second) < 2)
    >>> time = np.minimum(np.minimum(first, second), 2)
    >>> tree = CompetingRisksTree(depth=1).fit(x, Surv(time, cause, causes=("relapse", "death")))
    >>> incidence = tree.predict_cumulative_incidence(x[:3], times=[0.5, 1.0])
    >>> incidence.shape
    (3, 2, 2)
    >>> bool(np.allclose(incidence.sum(axis=1) + tree.predict_survival_function(x[:3], [0.5, 1.0]), 1))
    True
    """

    trees_: dict[str, SoftSurvivalTree]

    def __init__(
        self,
        depth: int = 2,
        leaf: str | HazardFamily | Mapping[str, str | HazardFamily] = "auto",
        ridge: float = 1e-3,
        fused: float | None = None,
        numeric: NumericEncodings | None = None,
        gate_numeric: NumericEncodings = "linear",
        interactions: Sequence[tuple[str, str]] = (),
        roughness: float = 1e-2,
        offset: float | None = None,
        fused_shape: float | None = None,
        gate_features: int | None = 2,
        min_leaf: float = 0.1,
        missing_numbers: Numeric = "mean",
        missing_categories: Categorical = "zeros",
        device: str = "cpu",
        dtype: str = "float64",
        engine: Engine = "auto",
        time_unit: str | None = None,
    ) -> None:
        self.depth = depth
        self.leaf = leaf
        self.ridge = ridge
        self.fused = fused
        self.numeric = numeric
        self.gate_numeric = gate_numeric
        self.interactions = interactions
        self.roughness = roughness
        self.offset = offset
        self.fused_shape = fused_shape
        self.gate_features = gate_features
        self.min_leaf = min_leaf
        self.missing_numbers = missing_numbers
        self.missing_categories = missing_categories
        self.device = device
        self.dtype = dtype
        self.engine = engine
        self.time_unit = time_unit

    # ------------------------------------------------------------------ fit

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Train the regressions of the causes, gates that divide by all of them, and leaves.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or
                array (n, p).
            y: :class:`~sstorch.Surv` with ``causes``, and with ``entry`` and ``id`` for left truncation and
                start-stop rows.
            sample_weight: (n,), >= 0: sampling weights, as in :meth:`SoftSurvivalTree.fit
                <sstorch.SoftSurvivalTree.fit>`; the group table is weighted.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
            ConfigError: a parameter has a value that does not exist.
        """
        return self.fit_data(training_rows(X, y, sample_weight, causes=True))

    def fit_data(self, data: SurvivalData, schema: Schema | None = None) -> Self:
        """:meth:`fit` to rows of positive weight whose causes are known.

        Args:
            data: rows.
            schema: columns and vocabulary; taken from the rows if None.
        """
        data = data.joined()
        schema = Schema.of(data.frame) if schema is None else schema
        parts = _parts(data)
        estimators = self._estimators(parts)
        _warn_of_rare_causes(parts)
        gates = self._gates([parts], estimators, schema)
        self.trees_ = {
            name: estimators[name].fit_data(part, schema, gates=gates) for name, part in parts.items()
        }
        self._set_causes(data)
        self.event_times_ = data.event_times
        self.zero_time_ = data.zero_time
        self.time_unit_ = check_time_unit(self.time_unit) or data.time_unit
        self.feature_names_in_ = np.asarray(data.feature_names, dtype=object)
        self.n_features_in_ = len(data.feature_names)
        for name in RESULTS:
            self.__dict__.pop(name, None)
        self.group_table_ = self._group_table(data, self._horizons())
        return self

    def _estimators(self, parts: Mapping[str, SurvivalData]) -> dict[str, SoftSurvivalTree]:
        """The tree of each cause, untrained, its parameters checked."""
        estimators = {name: self._estimator(name, parts) for name in parts}
        for estimator in estimators.values():
            estimator.settings()
        return estimators

    def _estimator(self, cause: str, parts: Mapping[str, SurvivalData]) -> SoftSurvivalTree:
        """The tree of one cause, untrained."""
        leaf = self.leaf
        if isinstance(leaf, Mapping):
            if set(leaf) != set(parts):
                raise ConfigError(f"leaf names {', '.join(leaf)}; the causes are {', '.join(parts)}")
            leaf = leaf[cause]
        if leaf == "auto":
            leaf = "spline_ph" if parts[cause].n_events >= MIN_EVENTS else "log_logistic"
        if make_family(leaf).can_rise:
            raise ConfigError(f"leaf of cause {cause}: cumulative incidences need curves that cannot rise")
        own = ("depth", "leaf", "min_leaf")
        shared = {name: value for name, value in self.get_params(deep=False).items() if name not in own}
        return SoftSurvivalTree(self.depth, leaf, min_leaf=self.min_leaf, **shared)

    def _gates(
        self,
        splits: Sequence[Mapping[str, SurvivalData]],
        estimators: Mapping[str, SoftSurvivalTree],
        schema: Schema,
    ) -> GateParameters | None:
        """Gates of each split, distilled from a regression of every cause, (S, B, q); None at depth 0.

        Args:
            splits: training rows of each split, by cause.
            estimators: the tree of each cause.
            schema: of all rows.
        """
        if self.depth == 0:
            return None
        first, number = next(iter(estimators)), torch.arange(len(splits))
        targets: list[list[FloatArray]] = [[] for _ in splits]
        for name, estimator in estimators.items():
            settings = clone(estimator).set_params(depth=0).settings()
            batch = train_batch([parts[name] for parts in splits], settings, schema)
            for split, parts in enumerate(splits):
                targets[split].append(_risk(batch.fitted(split, batch.best_start(split)), parts[name]))
        rows = [parts[first] for parts in splits]
        settings = estimators[first].settings().for_events(min(part.n_events for part in rows))
        preprocessors = fit_preprocessors(rows, settings, schema)
        x = [
            torch.as_tensor(each.transform(part.frame)[:, : len(each.gate_features)])
            for each, part in zip(preprocessors, rows, strict=True)
        ]
        # Shorter splits are filled up with rows without weight.
        return distil_gates(
            pad_sequence(x, batch_first=True),
            number,
            pad_sequence([torch.as_tensor(np.stack(own, 1)) for own in targets], True).mT.contiguous(),
            pad_sequence([torch.as_tensor(part.sample_weight) for part in rows], True),
            gate_columns(preprocessors[0]),
            Topology(self.depth),
            settings.distillation,
        )

    def _train_splits(
        self, data: SurvivalData, splits: Sequence[SurvivalData], schema: Schema
    ) -> TrainedBatch:
        """The trees of the first cause on each split, whose gates are those of all causes.

        Args:
            data: all rows, by which a leaf of ``"auto"`` is chosen.
            splits: training rows.
            schema: of all rows.
        """
        estimators = self._estimators(_parts(data))
        parts = [_parts(split.joined()) for split in splits]
        first = next(iter(estimators))
        gates, settings = self._gates(parts, estimators, schema), estimators[first].settings()
        return train_batch([own[first] for own in parts], settings, schema, gates=gates)

    # ------------------------------------------------------------------ predict

    def _incidences(self, X: object, times: FloatArray) -> FloatArray:
        """Integrals by Gauss-Legendre quadrature in log time, whose error is below 1e-8."""
        check_is_fitted(self, "trees_")
        rows = [tree._encode_new(X) if k == 0 else tree._encode(X) for k, tree in enumerate(self._each)]
        return cumulative_incidence(self._fitted, rows, times, self._panels)

    def apply(self, X: object) -> IntArray:
        """Leaf of each row's most probable path, 0 .. L - 1 from left to right, shape (n,)."""
        check_is_fitted(self, "trees_")
        return self._each[0].apply(X)

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves of any event as scores need them, (n, n_times), times increasing."""
        check_is_fitted(self, "trees_")
        return np.asarray(np.prod([tree.falling_curves(X, times) for tree in self._each], axis=0))

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        """Of any event: hazards of the causes are summed."""
        part: CurveKind = "cumulative_hazard" if kind == "survival" else kind
        total = np.sum([tree._curves(part, X, times) for tree in self._each], axis=0)
        return np.asarray(np.exp(-total) if kind == "survival" else total)

    # ------------------------------------------------------------------ score

    @property
    def objective_(self) -> float:
        """Training objective: the sum of those of the causes."""
        check_is_fitted(self, "trees_")
        return sum(tree.objective_ for tree in self._each)

    def log_likelihood(self, X: object, y: object, sample_weight: object = None) -> float:
        """Weighted mean log-likelihood per row, sum over causes of c_k log h_k - H_k + H_k(entry)."""
        data = self._scored(X, y, sample_weight)
        return sum(
            tree._tree.log_likelihood(tree._encode(data.frame), data.of_cause(name))
            for name, tree in self.trees_.items()
        )

    # ------------------------------------------------------------------ trust

    @property
    def _can_divide(self) -> bool:
        return self._each[0].depth > 0

    def _leaf_of(self, frame: pd.DataFrame) -> IntArray:
        return self._each[0]._leaf_of(frame)

    def _partition(self, frame: pd.DataFrame) -> Partition:
        return self._each[0]._partition(frame)

    def _resampled(self, data: SurvivalData, n_resamples: int) -> TreeSample:
        splits, draws = resamples(data, n_resamples, self._each[0].settings().seed)
        batch = self._train_splits(data, splits, Schema.of(data.frame))
        return TreeSample.of_splits(batch, "hbp", draws)

    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[LeafOf]:
        return leaves_of_splits(self._train_splits(data, splits, Schema.of(data.frame)), "hbp")

    def recalibrated(self, data: SurvivalData, how: Recalibrate, weights: WeightKind) -> Self:
        """See :func:`sstorch.recalibrate`."""
        new = copy.copy(self)
        for name in RESULTS:
            new.__dict__.pop(name, None)
        new.trees_ = {}
        for name, tree in self.trees_.items():
            try:
                new.trees_[name] = tree.with_recalibrated_leaves(data.of_cause(name), how, weights)
            except DataError as error:
                raise DataError(f"cause {name}: {error}") from error
        new.group_table_ = new._group_table(data, new._horizons(), weights=weights)
        return new

    @property
    def recalibration_(self) -> dict[str, Recalibration]:
        """Report of the recalibration of each cause, by name.

        Raises:
            AttributeError: the tree is as it was trained.
        """
        return {name: tree.recalibration_ for name, tree in self.trees_.items()}

    # ------------------------------------------------------------------ read

    def summary(self) -> str:
        """Rules at the gates, a table of the groups, and of each cause the slopes that all leaves share.

        Below them the results of :meth:`validate_groups`, :meth:`stability` and :func:`sstorch.recalibrate`.
        """
        check_is_fitted(self, "trees_")
        first, table = self._each[0], self.group_table_
        nodes, rules = first.node_table_, first._gate_rules
        shown = list(shown_leaves(nodes))
        counts = [f"{int(table[name, 'events'].sum())} {name}" for name in self.causes_]
        families = [tree.module.family.name for tree in self._fitted]
        leaves = families[0] if len(set(families)) == 1 else " and ".join(families)
        lines = [
            f"Competing risks tree: depth {first.depth}, {leaves} leaves, {table['', 'rows'].sum()} rows, "
            + ", ".join(counts)
        ]
        texts = {node: self._leaf_text(node - 2**first.depth) for node in shown}
        lines.append(rules_text(nodes, rules, _SUMMARY_TERMS, texts, {}))
        for name, tree in zip(self.causes_, self._fitted, strict=True):
            if tree.shares_slopes(shown):
                where = "within every group" if len(shown) > 1 else "in the leaf"
                lines += ["", f"Hazard of {name} {where}, what changes most over the training range first"]
                lines += slope_lines(tree, shown[0])
        is_recalibrated = hasattr(self, "recalibration_")
        unit = f", t in {self.time_unit_}" if self.time_unit_ else ""
        lines += [
            "",
            f"Groups{unit}; F(t) is the mean predicted incidence of a cause,",
            "AJ the Aalen-Johansen estimate (95 % confidence interval) in the rows "
            + ("of the recalibration" if is_recalibrated else "that have placed the gates"),
        ]
        if self.time_varying_:
            lines.append(f"F(t) is from time zero {CONSTANT_COVARIATES}")
        for name in self.causes_:
            lines += [name, _cause_text(table[[name]].droplevel(0, axis=1))]
        for result in RESULTS:
            if result in vars(self):
                lines += ["", str(vars(self)[result])]
        if is_recalibrated:
            for name, report in self.recalibration_.items():
                lines += ["", f"{name}: {report}"]
        return "\n".join(lines)

    def _leaf_text(self, leaf: int) -> str:
        table = self.group_table_
        counts = [f"{table[name, 'events'][leaf]:g} {name}" for name in self.causes_]
        return f"leaf {leaf}: {table['', 'rows'][leaf]:g} rows, {', '.join(counts)}"

    def explain(self, x: object, cause: int | str = 1) -> CauseExplanation:
        """Path of one person, what adds to the hazard of a cause in the leaf, and the incidences of all.

        Args:
            x: a single row, such as ``X.iloc[[0]]``.
            cause: by number or name.

        Raises:
            DataError: it is not one row.
            ConfigError: there is no such cause.
        """
        check_is_fitted(self, "trees_")
        name = self.causes_[self._number(cause) - 1]
        tree, horizons = self.trees_[name], self._horizons()
        alone = explain_row(tree._tree, tree._cleaned(x), horizons, {})
        found = self._incidences(x, horizons)[0]
        table = pd.DataFrame(found, index=pd.Index(self.causes_, name="cause"), columns=horizons)
        parts = vars(alone) | {"time_varying": self.time_varying_}
        return CauseExplanation(**parts, cause=name, incidence=table)

    # ------------------------------------------------------------------ keep

    def save(self, path: str | Path) -> None:
        """Write the fitted tree into a folder, the tree of each cause into one of its own, no pickle.

        Raises:
            ConfigError: the folder cannot be written, or a leaf is not registered.
        """
        check_is_fitted(self, "trees_")
        folder = Path(path)
        for number, tree in enumerate(self._each, 1):
            tree.save(folder / f"cause_{number}")
        table = self.group_table_
        state = {
            "outcome_type": self.outcome_type_.to_dict(),
            "horizon": self.horizon_,
            "trees_sha256": _checksums(folder, len(self.causes_)),
            "parameters": {"min_leaf": self.min_leaf},
            "group_table": {
                "index": [int(group) for group in table.index],
                "columns": [list(column) for column in table.columns],
                "values": table.astype(object).where(table.notna(), None).to_numpy().tolist(),
            },
        }
        if "group_validation_" in vars(self):
            state["group_validation"] = self.group_validation_.to_dict()
        write_folder(
            folder, FORMAT, FORMAT_VERSION, state, {"event_times": torch.as_tensor(self.event_times_)}
        )

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read a tree written by :meth:`save`, onto the given device.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        check_device(device)
        folder = Path(path)
        state, tensors = read_folder(folder, FORMAT, FORMAT_VERSION)
        with reading(folder):
            outcome = OutcomeType.from_dict(state["outcome_type"])
            names = outcome.causes or ()
            if _checksums(folder, len(names)) != state["trees_sha256"]:
                raise FormatError(f"{folder} holds the tree of another model")
            trees = [
                SoftSurvivalTree.load(folder / f"cause_{number}", device)
                for number in range(1, len(names) + 1)
            ]
            leaves = [tree.leaf for tree in trees]
            first = trees[0]
            own = set(cls._get_param_names()) - {"leaf", "min_leaf"}
            shared = {name: value for name, value in first.get_params(deep=False).items() if name in own}
            same = all(repr(leaf) == repr(leaves[0]) for leaf in leaves)
            leaf = leaves[0] if same else dict(zip(names, leaves, strict=True))
            estimator = cls(leaf=leaf, min_leaf=state["parameters"]["min_leaf"], **shared)
            estimator.trees_ = dict(zip(names, trees, strict=True))
            estimator.causes_, estimator.outcome_type_ = names, outcome
            estimator.event_times_ = tensors["event_times"].numpy()
            estimator.horizon_ = float(state["horizon"])
            table = state["group_table"]
            estimator.group_table_ = group_frame(table["index"], table["columns"], table["values"])
            if "group_validation" in state:
                estimator.group_validation_ = CompetingGroupValidation.from_dict(state["group_validation"])
            estimator.zero_time_, estimator.time_unit_ = first.zero_time_, first.time_unit_
            estimator.time_varying_ = first.time_varying_
            estimator.feature_names_in_ = first.feature_names_in_
            estimator.n_features_in_ = first.n_features_in_
        return estimator

    # ------------------------------------------------------------------ internals

    @property
    def _each(self) -> list[SoftSurvivalTree]:
        return list(self.trees_.values())

    @property
    def _fitted(self) -> list[FittedTree]:
        return [tree._tree for tree in self._each]

    @property
    def _schema(self) -> Schema:
        return self._each[0]._schema

    @property
    def _panels(self) -> FloatArray:
        """Between which hazards are smooth, log times."""
        bends = [tree.module.family.corners() + tree.module.log_time_scale for tree in self._fitted]
        corners = np.concatenate([each.detach().cpu().double().exp().numpy().ravel() for each in bends])
        return log_time_panels(self.event_times_, corners)


def _parts(data: SurvivalData) -> dict[str, SurvivalData]:
    """The rows with the event of each cause alone, by name."""
    return {name: data.of_cause(name) for name in data.cause_names}


def _cause_text(table: pd.DataFrame) -> str:
    """The table of the groups of one cause, each Aalen-Johansen estimate with its limits."""
    text = table.astype(object)
    for name in table:
        if f"AJ {name}" in table:
            text[name] = [f"{value:.3f}" for value in table[name]]
            parts = table[[f"AJ {name}", f"lower {name}", f"upper {name}"]].itertuples(index=False)
            text[f"AJ {name}"] = [_share_text(*part) for part in parts]
            text = text.drop(columns=[f"lower {name}", f"upper {name}"])
    return text.reset_index().to_string(index=False)


def _share_text(value: float, lower: float, upper: float) -> str:
    limits = f" ({lower:.3f} to {upper:.3f})" if np.isfinite(lower) else ""
    return f"{value:.3f}{limits}" if np.isfinite(value) else "-"


def _checksums(folder: Path, n_causes: int) -> list[str]:
    """Of the trees of the causes in a folder, all of whose files their own ``model.json`` knows."""
    files = [folder / f"cause_{number}" / "model.json" for number in range(1, n_causes + 1)]
    return [checksum(file.read_bytes()) for file in files]


def _risk(tree: FittedTree, data: SurvivalData) -> FloatArray:
    """Log cumulative hazard of each row at the median time of events, times the root of their number, (n,).

    The likelihood weighs squared differences of log hazards by events.
    """
    at = np.array([median_event_time(data)])
    hazard = tree.curves(tree.encode(data.frame), at, "cumulative_hazard")[:, 0]
    n_events = data.sample_weight[data.event].sum()
    return np.asarray(np.sqrt(n_events) * np.log(np.clip(hazard, _LEAST_HAZARD, None)))


def _warn_of_rare_causes(parts: Mapping[str, SurvivalData]) -> None:
    """Warn of each cause with fewer than ten events, or fewer than encoded columns."""
    for name, part in parts.items():
        told = few_events(part.frame, part.event)
        tell([Oddity(f"cause {name}: {each.text}", each.remedy) for each in told], False, stacklevel=4)
