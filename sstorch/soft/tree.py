"""The scikit-learn front of the soft survival tree."""

from __future__ import annotations

import copy
import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sstorch._types import FloatArray, IntArray
from sstorch.base import CurveKind, Times, check_alive, check_times
from sstorch.checks import check_after, check_device
from sstorch.data import OutcomeType, Schema, SurvivalData
from sstorch.data.encodings import ColumnEncodings, NumericEncodings
from sstorch.data.oddities import tell
from sstorch.data.preprocessing import Categorical, Numeric, Preprocessor
from sstorch.data.time_unit import check_time_unit
from sstorch.deploy.exporter import DeployableTree, Deployed
from sstorch.deploy.expression import Formula
from sstorch.exceptions import ConfigError, DataWarning
from sstorch.files import read_folder, reading, write_folder, write_whole
from sstorch.groups.estimators import RESULTS, LeafOf, SurvivalGroups
from sstorch.groups.recalibration import Recalibrate, Recalibration
from sstorch.groups.resampling import Partition
from sstorch.groups.stability import Stability
from sstorch.groups.table import groups_text
from sstorch.groups.validation import GroupValidation
from sstorch.metrics.weights import WeightKind
from sstorch.monitoring import History, ProgressBar
from sstorch.nn import GateParameters, HazardFamily, Prediction, SoftTree, Spline, make_family
from sstorch.objective import L2Parity
from sstorch.optim import Checkpoint, Engine, Nodec, Trainer
from sstorch.soft.batch import TrainedBatch, train_batch, train_encoded, training_rows
from sstorch.soft.fitted import FittedTree, leaf_of_state
from sstorch.soft.formula import deployed, tree_formula
from sstorch.soft.html import tree_html
from sstorch.soft.reading import ReadableTree
from sstorch.soft.recalibration import recalibrated
from sstorch.soft.rules import GateRule
from sstorch.soft.settings import SETTINGS, BatchSettings, GateRidgeUnits, as_json, from_json
from sstorch.soft.split_test import SplitTest, Tested, split_test
from sstorch.soft.step_curves import step_curves
from sstorch.soft.tree_sample import TreeSample, leaves_of_splits, partition
from sstorch.soft.uncertainty import bootstrap_trees

FORMAT = "sstorch.soft_survival_tree"
FORMAT_VERSION = 4
CARD = "MODEL_CARD.md"


class SoftEstimator(SurvivalGroups, DeployableTree):
    """Base class of the estimators that predict with a soft tree."""

    @property
    @abstractmethod
    def _tree(self) -> FittedTree:
        """The trained tree.

        Raises:
            sklearn.exceptions.NotFittedError: there is none yet.
        """

    def _fitted_html(self) -> str:
        if not hasattr(self, "event_times_"):
            return ""
        tree = self._alike
        return tree_html(tree._tree, tree.node_table_, tree._gate_rules)

    def _formula(self) -> Formula:
        return tree_formula(self._tree)

    def _deployed(self, medians: bool) -> Deployed:
        tree = self._alike
        return deployed(tree._tree, tree.node_table_, tree._gate_rules, medians)

    def predict(self, X: object) -> FloatArray:
        """Risk of each row: expected number of events up to the last training event time.

        Returns:
            Sum of H(t | x) over the distinct training event times, shape (n,); higher = earlier event. Over
            more than 4096 times it is taken by a quadrature of 512 terms, to about seven digits.
        """
        return self._tree.risk(self._encode_new(X), self.event_times_)

    @overload
    def predict_hazard_function(
        self,
        X: object,
        times: Times = None,
        as_frame: Literal[False] = False,
        *,
        after: npt.ArrayLike | None = None,
    ) -> FloatArray: ...

    @overload
    def predict_hazard_function(
        self,
        X: object,
        times: Times = None,
        *,
        as_frame: Literal[True],
        after: npt.ArrayLike | None = None,
    ) -> pd.DataFrame: ...

    def predict_hazard_function(
        self,
        X: object,
        times: Times = None,
        as_frame: bool = False,
        *,
        after: npt.ArrayLike | None = None,
    ) -> FloatArray | pd.DataFrame | npt.NDArray[np.object_]:
        """Hazard h(t | x) per time unit; arguments and shape as :meth:`predict_survival_function`."""
        return self._predict_curves("hazard", X, times, as_frame, after=after)

    def predict_leaf_proba(self, X: object) -> FloatArray:
        """Probability of each leaf, shape (n, L), leaves from left to right; rows sum to one."""
        return self._tree.leaf_probability(self._encode_new(X))

    def apply(self, X: object) -> IntArray:
        """Leaf of each row's most probable path, 0 .. L - 1 from left to right, shape (n,)."""
        return self._tree.apply(self._encode_new(X))

    def predict_quantile(self, X: object, q: float = 0.5, after: npt.ArrayLike | None = None) -> FloatArray:
        """Time by which a share ``q`` has had the event; the median by default.

        Args:
            X: rows with the training columns.
            q: in (0, 1).
            after: time at which the rows are known to be alive, or one for each row, (n,); what is left from
                there is then returned.

        Returns:
            shape (n,), original units; +inf where the survival function stays above 1 - q.

        Raises:
            ConfigError: ``q`` is not in (0, 1).
            DataError: by the model nobody like a row lives until ``after``.
        """
        self._refuse_unknown_future(after)
        x = self._encode_new(X)
        return self._tree.quantile(x, q, self._alive(x, after))

    def predict_rmst(self, X: object, tau: float, after: npt.ArrayLike | None = None) -> FloatArray:
        """Restricted mean survival time: the area under S(t | x) from 0 to ``tau``.

        Args:
            X: rows with the training columns.
            tau: > 0, original units; ``math.inf`` gives the mean, an extrapolation far beyond most follow-up.
            after: as in :meth:`predict_quantile`: the mean of what is left, of which ``tau`` counts as much.

        Returns:
            shape (n,), original units; +inf where ``tau`` is and the mean does not exist.

        Raises:
            ConfigError: ``tau`` is not positive.
            DataError: by the model nobody like a row lives until ``after``.
        """
        self._refuse_unknown_future(after)
        x = self._encode_new(X)
        return self._tree.restricted_mean(x, tau, self._alive(x, after))

    def _alive(self, x: Tensor, after: npt.ArrayLike | None) -> FloatArray | None:
        """Times at which rows are alive, (n,), checked; None if not given."""
        if after is None:
            return None
        times = check_after(after, len(x))
        check_alive(-self._tree.curves(x, times[:, None], "cumulative_hazard")[:, 0], times)
        return times

    def log_likelihood(self, X: object, y: object, sample_weight: object = None) -> float:
        """Mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x), in original units.

        Of an event within an interval it is log(S(lower | x) - S(upper | x)) + H(entry | x).

        Args:
            X: rows with the training columns.
            y: their outcome, as in ``fit``.
            sample_weight: (n,), >= 0; the mean is weighted.

        Raises:
            DataError: the data cannot be used, or the outcome lacks what that of training had.
        """
        data = self._scored(X, y, sample_weight)
        return self._tree.log_likelihood(self._encode(data.frame), data)

    # ------------------------------------------------------------------ trust

    def recalibrated(self, data: SurvivalData, how: Recalibrate, weights: WeightKind) -> SoftSurvivalTree:
        """See :func:`sstorch.recalibrate`."""
        return self._alike.with_recalibrated_leaves(data, how, weights)

    @property
    @abstractmethod
    def _alike(self) -> SoftSurvivalTree:
        """The estimator with the parameters of the tree, by which resamples are trained."""

    @property
    def _chosen(self) -> SoftSurvivalTree:
        return self._alike

    @property
    def _can_divide(self) -> bool:
        return self._alike.settings().depth > 0

    @property
    def _n_groups(self) -> int:
        return len(self._tree.module.topology.leaves)

    @property
    def _unit_of_time(self) -> str | None:
        return self._tree.time_unit

    def _leaf_of(self, frame: pd.DataFrame) -> IntArray:
        return self._tree.leaf_of(frame)

    def _leaf_survival(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        return self._tree.curves(self._tree.encode(frame), times)

    def _partition(self, frame: pd.DataFrame) -> Partition:
        return partition(self._tree, self._tree.encode(frame))

    def _resampled(self, data: SurvivalData, n_resamples: int) -> TreeSample:
        return bootstrap_trees(self._alike, data.frame, data.y, n_resamples, data.sample_weight)

    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[LeafOf]:
        batch = train_batch(splits, self._alike.settings(), Schema.of(data.frame))
        return leaves_of_splits(batch, self._alike.prediction)

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves as scores need them, (n, n_times), times increasing.

        They are those of :meth:`predict_survival_function`. Only unconstrained splines can rise; where they
        do, the curve is replaced by its smallest value up to each of the times, and a DataWarning says for
        how many rows.
        """
        curves = self._tree.curves(self._encode(X), check_times(times))
        if not self._tree.module.family.can_rise:
            return curves
        falling = np.minimum.accumulate(curves, axis=1)
        if n_rising := int((falling < curves).any(axis=1).sum()):
            warnings.warn(
                f"{n_rising} of {len(curves)} curves rise: scored as their running minimum; "
                "monotone=True has no such curves",
                DataWarning,
                stacklevel=3,
            )
        return falling

    @property
    def _schema(self) -> Schema:
        return self._tree.preprocessor.schema

    def _encode(self, X: object) -> Tensor:
        return self._tree.encode(self._cleaned(X))

    def _encode_new(self, X: object) -> Tensor:
        """Encoded features of rows to be predicted; a DataWarning names values far outside their range."""
        frame = self._cleaned(X)
        self._tree.preprocessor.warn_of_far_values(frame)
        return self._tree.encode(frame)

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        return self._tree.curves(self._encode_new(X), times, kind)

    def _curves_after(self, kind: CurveKind, X: object, times: FloatArray, after: FloatArray) -> FloatArray:
        if self._tree.module.family.can_rise:
            raise ConfigError("what is left after a time needs curves that cannot rise: use monotone=True")
        x, later = self._encode_new(X), after[:, None] + times
        gone = self._tree.curves(x, after[:, None], "cumulative_hazard")
        check_alive(-gone[:, 0], after)
        if kind == "hazard":
            return self._tree.curves(x, later, kind)
        left = self._tree.curves(x, later, "cumulative_hazard") - gone
        return np.exp(-left) if kind == "survival" else left

    def split_test(
        self,
        X: object,
        y: object,
        leaf: int | None = None,
        parameters: Tested = "all",
        sample_weight: object = None,
        n_flips: int = 999,
        trim: float = 0.1,
        random_state: int = 0,
    ) -> SplitTest:
        """Test whether the regression of a leaf holds for all its rows or changes with a column.

        Scores are the derivatives of each row's log-likelihood in intercept, slopes and shapes. If these are
        the same for all rows, sums of scores along a column wander about zero; where they drift off, a split
        by the column pays. Sums are decorrelated and squared, in units of their mean under the null (for
        ``"level"``, of the published t (1 - t)). The statistic of a numeric column is the largest over its
        splits (supLM), that of a categorical column the mean over its categories, as in model-based recursive
        partitioning.

        p values are the share of random signs of the scores, re-estimation of the parameters included, whose
        statistic is as large; permuting the column instead supposes that it does not depend on the features
        of the leaf. Before the test one Newton step leads from the leaf's parameters to the maximum of the
        likelihood of its rows: scores of penalised parameters have a sum, and a drift along skewed columns
        that would pass for a change even if they were centred.

        Args:
            X: rows, best those of training; of each leaf those whose most probable path ends there.
            y: their outcome, as in ``fit``.
            leaf: number of the leaf to test; None for all that have rows.
            parameters: ``"all"``, whether a split with regressions of their own would pay; ``"level"``,
                intercept and shapes alone, slopes being free but shared.
            sample_weight: (n,), >= 0, as in ``fit``.
            n_flips: sets of signs.
            trim: smallest share of the leaf's rows on either side of a split by a number, in (0, 1/2).
            random_state: seed of the signs.

        Raises:
            DataError: the data cannot be used, or the leaf has none of the rows.
            ConfigError: an argument has a value that does not exist.

        References:
            Zeileis and Hornik (2007), "Generalized M-fluctuation tests for parameter instability", Statistica
            Neerlandica 61, 488-508. Zeileis, Hothorn and Hornik (2008), "Model-based recursive partitioning",
            Journal of Computational and Graphical Statistics 17, 492-514. Hemerik, Goeman and Finos (2020),
            "Robust testing in generalized linear models by sign flipping score contributions", Journal of
            the Royal Statistical Society B 82, 841-864. Westfall and Young (1993), "Resampling-based multiple
            testing", for the p values adjusted for the search over columns.
        """
        data = self._scored(X, y, sample_weight)
        return split_test(self._tree, data, leaf, parameters, n_flips, trim, random_state)


class SoftSurvivalTree(SoftEstimator, ReadableTree):
    """Soft survival tree: soft multivariate splits, a parametric survival model in each leaf.

    By default the tree divides people into groups of different prognosis at no loss of accuracy: gates are
    distilled from the predictions of the regression without gates, two columns each, and the leaves share its
    slopes and curves and have levels and shapes of their own. Another ``trainer`` or ``init`` trains gates
    and leaves on the outcomes, as published: ``SoftSurvivalTree(trainer="nodec")``, and :meth:`paper` with
    all published settings.

    A person's prediction comes from one leaf, that of the most probable branch at every gate. ``n_starts``
    trees are trained as one batch and the one with the lowest training objective is kept, or with the lowest
    loss on the rows that ``holdout`` leaves out.

    Args:
        depth: gates on every path, 0 (no gate: a plain parametric model) to 6.
        leaf: name of a hazard family (``"log_logistic"``, ``"weibull"``, ``"spline_po"`` ...) or a family
            object such as ``Spline(scale="odds", knots=3)``.
        n_starts: initial solutions tried; None for 1 where gates are distilled, and 10 otherwise.
        trainer: ``"leaves"`` (gates stay where the start has put them), ``"nodec"`` (node-based
            decomposition), ``"joint"`` (all parameters at once) or ``"nodec+joint"``, or settings such
            as ``Nodec(eps="eps_ordered", macro_iterations=5)``. The two names with a decomposition drop the
            worse half of the starts after three macro iterations (``Race()``); ``Nodec()`` trains all to the
            end. None for ``"leaves"`` where gates are distilled, and ``"nodec"`` for another ``init``.
        init: initial solutions: ``"distilled"`` (see ``gate_features``), ``"random"``, ``"kmeans"``, or
            ``"cox"`` for spline leaves. None for ``"distilled"``, or ``"random"`` with a trainer that moves
            gates.
        ridge: coefficient of (1/2) ||gamma||^2 over the slopes of the leaves, >= 0.
        gate_ridge: coefficient of (1/2) ||w||^2 over the weights of the gates, >= 0.
        gate_ridge_units: of the columns that these weights are for: ``"range"``, all columns on [0, 1] as
            published, in which a column with a long tail may hardly have a say; ``"sd"``, their standard
            deviations. None for ``"sd"`` with ``init="distilled"``, and ``"range"`` otherwise.
        fused: coefficient of (1/2) sum_n ||theta_n - mean theta||^2 over slopes and shapes, >= 0. At
            infinity, with ``trainer="leaves"`` alone, all leaves have the same slopes, exactly, and shapes
            are free of it. None for infinity with that trainer and 0 with the others.
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
        engine: what trains, ``"torch"``, ``"compiled"`` (the CPU, double precision, most leaves; 5 to 13
            times as fast with many starts, after about 40 seconds of compiling at its first use on a
            machine), or ``"auto"``: compiled where it can be and rows times starts are a million or more,
            five where leaves alone are trained.
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
        numeric: what the leaves see of numeric columns: ``"auto"``, splines from 150 events on and logarithms
            below; ``"linear"``, the columns as they are; ``"log"``, the
            logarithm of those that are skewed to the right (skewness above 1.5); ``"piecewise"``, broken
            lines with bends at quantiles; ``"spline"``, natural cubic splines; with options,
            ``"piecewise(8)"`` (pieces) and ``"spline(6)"`` (degrees of freedom); or a dictionary of these by
            column, whose other columns are linear. Knots come from the training rows. Every curve goes on as
            a straight line beyond its outermost knots, and a column of fewer than five distinct values stays
            as it is. None for ``"auto"`` with ``trainer="leaves"``, and ``"linear"`` otherwise.
        gate_numeric: what the gates see of them; linear gates have rules in original units.
        interactions: pairs of columns, such as ``[("age", "sex")]``, whose products the leaves see beside
            them: straight lines of each, numbers counted from their means.
        monotone: columns whose effect on risk must rise, ``"up"``, or fall, ``"down"``, in every leaf, such
            as ``{"nodes": "up"}``; not for splines.
        roughness: coefficient of (1/2) sum of squared changes of slope (``"piecewise"``), or of the integral
            of the squared second derivative (``"spline"``), of each column's curve in each leaf, columns in
            units of their standard deviations, >= 0: at infinity all is linear.
        offset: coefficient of (1/2) sum_n (gamma_0n - mean gamma_0)^2, >= 0, on differences between the
            levels of the leaves. With shared slopes the tree becomes the regression without gates as it
            grows. None for .1 with ``trainer="leaves"``, and 0 otherwise.
        fused_shape: the same of their shapes, beside ``fused``; None for .01 with ``trainer="leaves"``, and 0
            otherwise.
        gate_features: columns of a gate of ``init="distilled"``: 1 gives plain thresholds and sets of
            categories, None gates on all columns.
        min_leaf: least share of the training rows, by weight, in a leaf, in [0, .5): exact in a leaf of
            ``init="distilled"``; every trainer that moves gates adds 10 times the sum over leaves of the
            squared share that each lacks of it, rows routed softly. None for .1 with ``init="distilled"``,
            and 0 otherwise.
        time_unit: unit of the times, such as ``"days"``, as texts and figures name it; their round times
            (a year, half a year) follow it. None for that of the data, where these know it.

    Attributes:
        module_: the trained :class:`~sstorch.nn.SoftTree`, without batch dimension.
        preprocessor_: fitted on the training rows.
        history_: records of the training of the start that was kept.
        objective_: its training objective.
        event_times_: distinct training event times, original units, increasing.
        zero_time_: what replaces a time of zero when rows are scored: half the smallest training time.
        time_unit_: unit of the times; None if not known.
        outcome_type_: type of the training outcome; what takes ``y`` refuses rows that lack its entry or id.
        time_varying_: whether it was trained on subjects with several rows, whose covariates change.
        node_table_: training rows, events and survival, predicted and by Kaplan-Meier, of each node, by heap
            number.
        metrics_: scores by name that are to be kept with the tree, such as those of a cross-validation; empty
            until they are put there.
        group_table_: the last corrected table of :meth:`group_table`, once there was one; not saved.
        stability_: the last result of :meth:`stability`, once there was one; not saved.
        group_validation_: the last result of :meth:`validate_groups`, or that of the cross-validation which
            the tree comes from, once there was one.
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

    module_: SoftTree
    preprocessor_: Preprocessor
    history_: History
    objective_: float
    metrics_: dict[str, float]
    group_table_: pd.DataFrame
    stability_: Stability
    group_validation_: GroupValidation

    def __init__(
        self,
        depth: int = 2,
        leaf: str | HazardFamily = "log_logistic",
        n_starts: int | None = None,
        trainer: str | Trainer | None = None,
        init: str | None = None,
        ridge: float = 1e-3,
        gate_ridge: float = 1e-4,
        fused: float | None = None,
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
        numeric: NumericEncodings | None = None,
        gate_numeric: NumericEncodings = "linear",
        interactions: Sequence[tuple[str, str]] = (),
        monotone: Mapping[str, str] | None = None,
        roughness: float = 1e-2,
        offset: float | None = None,
        fused_shape: float | None = None,
        gate_features: int | None = 2,
        min_leaf: float | None = None,
        gate_ridge_units: GateRidgeUnits | None = None,
        engine: Engine = "auto",
        time_unit: str | None = None,
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
        self.numeric = numeric
        self.gate_numeric = gate_numeric
        self.interactions = interactions
        self.monotone = monotone
        self.roughness = roughness
        self.offset = offset
        self.fused_shape = fused_shape
        self.gate_features = gate_features
        self.min_leaf = min_leaf
        self.gate_ridge_units = gate_ridge_units
        self.engine = engine
        self.time_unit = time_unit

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
            "gate_ridge_units": "range",
            "gate_sparsity": 0.0,
            "fused": 0.0,
            "holdout": 0.0,
            "prediction": "hbp",
            "min_leaf": 0.0,
        }
        return cls(depth, leaf, **(published | parameters))

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        sensitive: object = None,
    ) -> Self:
        """Train ``n_starts`` trees and keep the one with the lowest training objective.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or
                array (n, p). Columns that :meth:`Surv.of <sstorch.Surv.of>` took into ``y`` are no features.
            y: :class:`~sstorch.Surv`: right-censored, left-truncated (``entry``), start-stop rows of subjects
                (``entry`` and ``id``; covariates may change from row to row, and folds and resamples keep the
                rows of a subject together), or interval-censored. A right-censored outcome may also be a
                (time, event) tuple, a structured array with an event and a time field, or a DataFrame with
                the columns ``time`` and ``event``.
            sample_weight: (n,), >= 0: sampling weights, such as inverse probabilities of selection. Their
                scale changes nothing, neither the tree nor a confidence interval: tables show weighted means
                of the model, weighted Kaplan-Meier estimates, and limits from robust variances with w^2 and
                the effective sample size (sum w)^2 / sum w^2. For integers that count observed rows, pass
                ``weights="frequency"`` to :meth:`group_table`, :meth:`validate_groups` and
                :func:`recalibrate`.
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
        return self.fit_data(training_rows(X, y, sample_weight, sensitive), checkpoint=checkpoint)

    def fit_data(
        self,
        data: SurvivalData,
        schema: Schema | None = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        gates: GateParameters | None = None,
    ) -> Self:
        """:meth:`fit` to rows of positive weight.

        Args:
            data: rows.
            schema: columns and vocabulary; taken from the rows if None.
            checkpoint: file that is written after every pass of the training.
            gates: instead of those of ``init``, for encoded features: weights (1, B, q) and biases (1, B).
        """
        data = data.joined()  # as the batch does, whose encoded rows are these
        callbacks = [ProgressBar()] if self.verbose else []
        batch, x = train_encoded([data], self.settings(), schema, callbacks, checkpoint, gates=gates)
        self.adopt(batch, data, 0, batch.best_start(0))
        self.warn_of_step_curves(data, x[0])
        self._make_node_table(x[0])
        return self

    def settings(self) -> BatchSettings:
        """The checked parameters, as the batch trainer takes them."""
        values = {name: getattr(self, name) for name in SETTINGS if name != "seed"}
        check_time_unit(self.time_unit)
        return BatchSettings.check(**values, seed=self._seed())

    def adopt(
        self, batch: TrainedBatch, data: SurvivalData, split: int, start: int, setting: int = 0
    ) -> Self:
        """Take over one tree of a trained batch.

        Its ``node_table_`` is made when it is first looked at, for which the rows are held until then.

        Args:
            batch: trained trees.
            data: training rows of the split.
            split: number of the split.
            start: number of the start.
            setting: position of its coefficients in ``batch.coefficients``.
        """
        position = batch.position(split, start, setting)
        self.module_, self.preprocessor_ = batch.tree.select(position), batch.preprocessors[split]
        self.history_ = batch.history.of_problem(position)
        self.objective_ = float(batch.objective[position])
        self.event_times_ = data.event_times
        self.zero_time_ = data.zero_time
        self.outcome_type_ = data.outcome_type
        self.time_varying_ = data.time_varying
        self.time_unit_ = check_time_unit(self.time_unit) or data.time_unit
        self.feature_names_in_ = np.asarray(data.feature_names, dtype=object)
        self.n_features_in_ = len(data.feature_names)
        self.metrics_ = {}
        for name in (*RESULTS, "group_table_", "recalibration_"):  # those of another tree
            self.__dict__.pop(name, None)
        self._read_later(data)
        return self

    def with_recalibrated_leaves(
        self, data: SurvivalData, how: Recalibrate, weights: WeightKind = "sampling"
    ) -> SoftSurvivalTree:
        """Copy of the tree, recalibrated on rows of positive weight; see :func:`sstorch.recalibrate`."""
        module, report = recalibrated(self._tree, data, how, weights)
        new = copy.copy(self)
        rules = self._gate_rules
        for name in (*RESULTS, "group_table_"):
            new.__dict__.pop(name, None)
        new.module_, new.recalibration_ = module, report
        new._read_later(data)
        new._make_node_table()
        new._gate_rules = rules  # digits as the training rows ask for them: gates are the same
        return new

    def warn_of_step_curves(self, data: SurvivalData, x: Tensor | None = None) -> None:
        """Name leaves of which new rows would be all but impossible, in a DataWarning each.

        Args:
            data: the training rows.
            x: the same rows, encoded, if they are at hand; shape (n, p).
        """
        tree = self._tree
        tell(step_curves(tree, tree.encode(data.frame) if x is None else x, data), strict=False, stacklevel=3)

    def summary(self) -> str:
        """Rules at the gates, in original units, and a table of the leaves, as text.

        Below them whether groups differ on other rows, the corrected groups and their stability, once
        :meth:`validate_groups`, :meth:`group_table` with resamples and :meth:`stability` were called.
        """
        parts = [super().summary()]
        if "group_validation_" in vars(self):
            parts.append(str(self.group_validation_))
        if "group_table_" in vars(self):
            parts.append(groups_text(self.group_table_))
        if "stability_" in vars(self):
            parts.append(str(self.stability_))
        if "recalibration_" in vars(self):
            parts.append(str(self.recalibration_))
        return "\n\n".join(parts)

    def model_card(
        self, format: Literal["markdown", "html"] = "markdown", validation: pd.DataFrame | None = None
    ) -> str:
        """What the tree is, whom it was made from, how good it is, and what it is not for.

        Args:
            format: ``"markdown"``, or ``"html"``, a page that needs no network. :meth:`save` writes it in
                Markdown beside the model.
            validation: scores of rows that the tree was not trained on, one in a row of the frame, with its
                interval in columns.

        Raises:
            ConfigError: there is no such format.
        """
        if format not in ("markdown", "html"):
            raise ConfigError(f"format must be 'markdown' or 'html', got {format!r}")
        # Pages need templates and figures, which a fit does not.
        from sstorch.document import to_html, to_markdown
        from sstorch.soft.model_card import model_card

        nodes = self.node_table_
        names = ("group_validation_", "stability_", "recalibration_")
        card = model_card(
            self._tree,
            self.describe().splitlines(),
            self.export_text(),
            (int(nodes["rows"].iloc[0]), int(nodes["events"].iloc[0])),
            self.event_times_,
            self.metrics_,
            [str(vars(self)[name]) for name in names if name in vars(self)],
            "recalibrated" if "recalibration_" in vars(self) else "trained",
            validation,
        )
        return to_markdown(card) if format == "markdown" else to_html(card)

    @property
    def _alike(self) -> SoftSurvivalTree:
        return self

    @property
    def _tree(self) -> FittedTree:
        check_is_fitted(self, "module_")
        return FittedTree(
            self.module_, self.preprocessor_, self.prediction, self.time_unit_, self.time_varying_
        )

    # ------------------------------------------------------------------ keep

    def save(self, path: str | Path) -> None:
        """Write the fitted tree into a folder: ``model.json`` and ``tensors.safetensors``, no pickle.

        ``metrics_``, ``group_validation_`` and ``recalibration_`` go with it. The :meth:`model_card` is
        written beside them, ``MODEL_CARD.md``.

        Raises:
            ConfigError: the folder cannot be written, or the leaf is a family that is not in the registry,
                which no file could rebuild.
        """
        state, tensors = self._tree.state()
        # Depth and type are those of the fitted tree: parameters may have been set anew since.
        state["parameters"] |= {
            name: as_json(getattr(self, name)) for name, item in SETTINGS.items() if item.saved
        }
        state["parameters"] |= {
            "numeric": None if self.numeric is None else ColumnEncodings.of(self.numeric).plain,
            "gate_numeric": ColumnEncodings.of(self.gate_numeric).plain,
            "interactions": [list(pair) for pair in self.interactions],
            "monotone": self.monotone if self.monotone is None else dict(self.monotone),
            "gate_features": self.gate_features,
        }
        state |= {
            "feature_names": [str(name) for name in self.feature_names_in_],
            "event_times": self.event_times_.tolist(),
            "zero_time": self.zero_time_,
            "time_unit": self.time_unit_,
            "time_varying": self.time_varying_,
            "outcome_type": self.outcome_type_.to_dict(),
            "objective": self.objective_,
            "node_table": _split_table(self.node_table_),
            "gate_rules": [asdict(rule) for rule in self._gate_rules.values()],
            "metrics": {str(name): float(value) for name, value in self.metrics_.items()},
        }
        if "group_validation_" in vars(self):
            state["group_validation"] = self.group_validation_.to_dict()
        if "recalibration_" in vars(self):
            state["recalibration"] = self.recalibration_.to_dict()
        write_folder(Path(path), FORMAT, FORMAT_VERSION, state, tensors)
        write_whole(Path(path) / CARD, self.model_card().encode())

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read a tree written by :meth:`save`, onto the given device.

        ``trainer``, ``random_state`` and ``verbose`` are not kept: they say how to train, not what was
        trained.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        check_device(device)
        state, tensors = read_folder(Path(path), FORMAT, FORMAT_VERSION)
        with reading(Path(path)):
            parameters = state["parameters"] | {"fused": from_json(state["parameters"]["fused"])}
            estimator = cls(leaf=leaf_of_state(state), device=device, **parameters)
            tree = FittedTree.from_state(state, tensors, device)
            estimator.module_, estimator.preprocessor_ = tree.module, tree.preprocessor
            estimator.event_times_ = np.array(state["event_times"], dtype=np.float64)
            estimator.zero_time_ = float(state["zero_time"])
            estimator.time_unit = estimator.time_unit_ = check_time_unit(state["time_unit"])
            estimator.time_varying_ = bool(state["time_varying"])
            estimator.outcome_type_ = OutcomeType.from_dict(state["outcome_type"])
            estimator.objective_ = float(state["objective"])
            estimator.node_table_ = _join_table(state["node_table"])
            rules = zip(tree.module.topology.branches, state["gate_rules"], strict=True)
            estimator._gate_rules = {node: GateRule.from_dict(rule) for node, rule in rules}
            estimator.metrics_ = {str(k): float(value) for k, value in state["metrics"].items()}
            if "group_validation" in state:
                estimator.group_validation_ = GroupValidation.from_dict(state["group_validation"])
            if "recalibration" in state:
                estimator.recalibration_ = Recalibration.from_dict(state["recalibration"])
            estimator.feature_names_in_ = np.array([str(name) for name in state["feature_names"]], object)
            estimator.n_features_in_ = len(estimator.feature_names_in_)
        estimator.history_ = History()
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        if "_training_rows" in vars(self):  # a file holds the table, not the rows
            self._make_node_table()
        state: dict[str, Any] = super().__getstate__()
        return state

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


def _split_table(table: pd.DataFrame) -> dict[str, Any]:
    values = table.astype(object).where(table.notna(), None)
    return {"node": [int(node) for node in table.index], **{str(name): list(values[name]) for name in values}}


def _join_table(columns: dict[str, list[Any]]) -> pd.DataFrame:
    table = pd.DataFrame(columns).set_index("node")
    return table.astype({name: np.float64 for name in table.columns if name not in ("rows", "events")})
