"""Methods about groups that soft and exact trees share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch.base import SurvivalEstimator, check_times
from sstorch.checks import check_integer
from sstorch.data import SurvivalData, folds_of
from sstorch.data.folds import split, train_outside_score_inside
from sstorch.data.time_unit import round_horizons
from sstorch.exceptions import ConfigError
from sstorch.groups.competing_validation import CompetingGroupValidation, held_out_groups_of_causes
from sstorch.groups.resampling import Partition, Resamples
from sstorch.groups.stability import Stability, stability
from sstorch.groups.table import group_table
from sstorch.groups.validation import GroupValidation, held_out_groups
from sstorch.metrics.weights import WeightKind, check_weighting

Validation = TypeVar("Validation", GroupValidation, CompetingGroupValidation)
# From rows that were read to the leaf of each, (n,).
LeafOf = Callable[[pd.DataFrame], IntArray]
# Results about a tree's groups, which another tree does not have.
RESULTS = ("group_validation_", "stability_")


class TreeGroups(SurvivalEstimator, Generic[Validation]):
    """Base class of the trees whose leaves are groups of rows; not for use by itself.

    Attributes:
        stability_: the last result of :meth:`stability`, once there was one; not saved.
        group_validation_: the last result of :meth:`validate_groups`, once there was one; saved.
    """

    stability_: Stability
    group_validation_: Validation
    group_table_: pd.DataFrame

    @abstractmethod
    def _leaf_of(self, frame: pd.DataFrame) -> IntArray:
        """Leaf of each row that was read, (n,), without a warning."""

    @property
    @abstractmethod
    def _can_divide(self) -> bool:
        """Whether the parameters allow more than one group."""

    @abstractmethod
    def _partition(self, frame: pd.DataFrame) -> Partition:
        """Groups that the tree makes of rows that were read."""

    @abstractmethod
    def _resampled(self, data: SurvivalData, n_resamples: int) -> Resamples:
        """Trees with the parameters of the estimator, trained on resamples of subjects."""

    @abstractmethod
    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[LeafOf]:
        """Trees with the parameters of the estimator, trained on each of some splits of the rows.

        Of each tree the function that gives the leaf of rows that were read, (n,).
        """

    @abstractmethod
    def _held_out(
        self, data: SurvivalData, folds: IntArray, groups: IntArray, weights: WeightKind
    ) -> Validation:
        """Validation of the groups of the folds."""

    @property
    def _chosen(self) -> TreeGroups[Validation]:
        """The estimator that holds the results, of a search that of the chosen tree."""
        return self

    def stability(
        self,
        X: object,
        y: object,
        n_resamples: int = 50,
        sample_weight: object = None,
        sample: Resamples | None = None,
    ) -> Stability:
        """Stability of the groups, and of the columns that make them, over resamples of the subjects.

        Trees with the parameters of the estimator are trained on each resample, in which a subject has as
        weight how often it was drawn, times its own; those of an exact search choose their size again.
        ``print`` shows the result, as does :meth:`summary`, and :func:`~sstorch.plots.plot_stability` draws
        it. A loaded soft tree does not know its trainer.

        ``min_leaf`` and ``min_events`` of an exact tree count the distinct rows of a resample, about 63 %.

        Args:
            X: training rows.
            y: their outcome, as in ``fit``.
            n_resamples: number of resamples.
            sample_weight: (n,), >= 0, as in ``fit``.
            sample: trees of resamples of the same parameters and rows, if they are there already, instead of
                ``n_resamples``: :func:`sstorch.soft.bootstrap_trees` or
                :func:`sstorch.exact.estimators.bootstrap_trees`.

        Raises:
            DataError: the data cannot be used, or a resample has no event, or no event of a cause.
            ConfigError: ``n_resamples`` is no number >= 1.

        References:
            Hubert and Arabie (1985), "Comparing partitions", Journal of Classification 2, 193-218. Philipp,
            Rusch, Hornik and Strobl (2018), "Measuring the stability of results from supervised statistical
            learning", Journal of Computational and Graphical Statistics 27, 685-700.
        """
        data = self._rows(X, y, sample_weight)
        sample = self._resampled(data, n_resamples) if sample is None else sample
        self._chosen.stability_ = stability(self._partition(data.frame), sample, data.frame, data.run_ends)
        return self._chosen.stability_

    def validate_groups(
        self,
        X: object,
        y: object,
        n_folds: int = 5,
        sample_weight: object = None,
        random_state: int = 0,
        weights: WeightKind = "sampling",
    ) -> Validation:
        """Whether groups that are made as these differ on held-out rows.

        Trees with the parameters of the estimator are trained outside each fold; folds keep the rows of a
        subject together and are stratified by event or cause. The held-out rows then get their groups. A
        log-rank test, stratified by fold, compares their survival, and where causes compete the hazard of
        each cause, and Gray's test its cumulative incidence. Consecutive rows of a subject with equal
        covariates are merged first. :meth:`summary` shows the result, and it is saved with the tree. An exact
        search chooses its size again outside each fold; a soft tree knows nothing of choices that were made
        before, such as of parameters, nor a loaded one of its trainer.

        Args:
            X: training rows.
            y: their outcome, as in ``fit``.
            n_folds: number of folds.
            sample_weight: (n,), >= 0, as in ``fit``.
            random_state: seed of the folds.
            weights: ``"sampling"``: tests have the robust variance, which does not depend on the scale of the
                weights (:func:`~sstorch.metrics.logrank_test`); ``"frequency"``: how often each row was
                observed, as integers.

        Raises:
            DataError: the data cannot be used, hold too few events, or events of a cause, for so many folds,
                or frequency weights are no integers.
            ConfigError: the tree has depth 0, or an argument is out of range.

        References:
            Gray (1988), Annals of Statistics 16, 1141-1154. Simon, Subramanian, Li and Menezes (2011), "Using
            cross-validation to evaluate predictive accuracy of survival risk classifiers based on
            high-dimensional data", Briefings in Bioinformatics 12, 203-214.
        """
        data = self._rows(X, y, sample_weight)
        data.refuse_intervals()
        check_weighting(data.sample_weight, len(data), weights)  # before any work
        if not self._can_divide:
            raise ConfigError("a tree of depth 0 has one group: there is nothing to validate")
        data = data.joined()
        seed = check_integer("random_state", random_state, 0)
        folds = folds_of(data, check_integer("n_folds", n_folds, 2), seed)

        def train(splits: list[SurvivalData]) -> Iterator[tuple[int, LeafOf]]:
            yield from enumerate(self._trained(data, splits))

        groups = train_outside_score_inside(split(data, folds), train, lambda _, leaf_of: leaf_of(data.frame))
        self._chosen.group_validation_ = self._held_out(data, folds, np.stack(list(groups)), weights)
        return self._chosen.group_validation_


class CauseGroups(TreeGroups[CompetingGroupValidation]):
    """Base class of the trees of competing risks, whose leaves are groups; not for use by itself."""

    def _held_out(
        self, data: SurvivalData, folds: IntArray, groups: IntArray, weights: WeightKind
    ) -> CompetingGroupValidation:
        return held_out_groups_of_causes(data, folds, groups, weights)


class SurvivalGroups(TreeGroups[GroupValidation]):
    """Base class of the survival trees, whose leaves are groups; not for use by itself.

    Attributes:
        group_table_: the last corrected table of :meth:`group_table`, once there was one; not saved.
    """

    @property
    @abstractmethod
    def _n_groups(self) -> int:
        """Number of leaves."""

    @abstractmethod
    def _leaf_survival(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        """Predicted survival of rows that were read, (n, n_times)."""

    @property
    @abstractmethod
    def _unit_of_time(self) -> str | None:
        """Unit of the times."""

    def _held_out(
        self, data: SurvivalData, folds: IntArray, groups: IntArray, weights: WeightKind
    ) -> GroupValidation:
        return held_out_groups(data, folds, groups, weights)

    def group_table(
        self,
        X: object,
        y: object,
        horizons: npt.ArrayLike | None = None,
        n_resamples: int = 0,
        confidence: float = 0.95,
        sample_weight: object = None,
        sample: Resamples | None = None,
        weights: WeightKind = "sampling",
    ) -> pd.DataFrame:
        """Kaplan-Meier medians and survival of the rows of each leaf, with confidence intervals.

        On rows that the tree was not trained on the estimates are honest as they are. On its training rows
        they are not: gates or questions were placed where these rows differ, so the groups look further apart
        than they are. With ``n_resamples`` they are corrected. Each resample trains the tree anew; the
        difference between Kaplan-Meier of its groups in the rows that were drawn and in those that were not,
        times .632, is its optimism, as in Efron's estimate of prediction error. Groups of different trees
        correspond by their place in the order of risk (mean of their curves): a group takes the optimism of
        those that hold the same shares of all rows. The mean over resamples, at each time, is taken off the
        curve, and medians are read from what is left. Limits are those of the corrected curve on the scale of
        log(-log S), widened on both sides by the correction itself: they allow for an optimism between none
        and twice what was estimated.

        The naive intervals are pointwise: log(-log S) with Greenwood's variance; that of the median holds the
        times at which the band holds 1/2 (Brookmeyer and Crowley).

        Corrected intervals are about this tree's groups as wholes, not about each subject in them, and hold
        at each time, not at all at once. In simulations of soft trees those of 95 % covered 96 to 99 % of the
        true medians, the naive ones 58 to 82 % (``experiments/groups``); where the groups do not differ at
        all, a part of the bias stays in the corrected estimates. Resamples do not see what was chosen before,
        such as parameters; for that keep test rows.

        Args:
            X: rows; with ``n_resamples`` those of training.
            y: their outcome, as in ``fit``.
            horizons: times at which survival is given; if None two round times that divide the training event
                times into about three.
            n_resamples: for the correction, 50 or more; 0 for none.
            confidence: of the intervals.
            sample_weight: (n,), >= 0.
            sample: as of :meth:`stability`, instead of ``n_resamples``.
            weights: ``"sampling"``: intervals do not depend on the scale of the weights, and unequal weights
                widen them (infinitesimal jackknife, :class:`~sstorch.metrics.KaplanMeierBand`);
                ``"frequency"``: how often each row was observed, as integers. Resamples draw rows with their
                weights in both cases.

        Returns:
            A row for each leaf with rows, indexed by ``group``; columns of two levels: numbers of ``rows``
            and ``events``, unweighted, consecutive rows of a subject with equal covariates being one;
            ``median`` with ``estimate``, ``lower`` and ``upper``, +inf where it is not reached; ``S(t)`` with
            these and ``model``, the weighted mean of the predicted curves, nan beyond the last row observed.
            With resamples also ``corrected``, ``corrected lower`` and ``corrected upper``.

        Raises:
            DataError: the data cannot be used, hold too few events, or frequency weights are no integers.
            ConfigError: an argument is out of range.

        References:
            Efron (1983), "Estimating the error rate of a prediction rule", Journal of the American
            Statistical Association 78, 316-331. Harrell (2015), Regression Modeling Strategies, 2nd edition,
            section 5.3. LeBlanc and Crowley (1993), "Survival trees by goodness of split", Journal of the
            American Statistical Association 88, 457-467, who correct split statistics likewise.
        """
        given = self._rows(X, y, sample_weight)
        data = given.joined()
        if horizons is None:
            horizons = round_horizons(self.event_times_, self._unit_of_time, (1 / 3, 2 / 3))
        at = check_times(horizons)
        if sample is None and check_integer("n_resamples", n_resamples, 0):
            sample = self._resampled(given, n_resamples)
        resampled = None
        if sample is not None:
            if sample.draws is None or sample.draws.shape[1] != len(given):
                raise ConfigError("sample must be what bootstrap_trees gives for the same rows")
            resampled = sample.apply(data.frame), sample.draws[:, given.run_ends]
        group, predicted = self._leaf_of(data.frame), self._leaf_survival(data.frame, at)
        table = group_table(group, self._n_groups, predicted, data, at, confidence, resampled, weights)
        if sample is not None:
            self._chosen.group_table_ = table
        return table

    def concordance_of_groups(self, X: object, y: object, train: tuple[object, object]) -> float:
        """Concordance of a model that knows only the leaf of a row.

        It predicts Kaplan-Meier of the training rows of the leaf; 0.5 means that the groups do not differ.
        Whether they differ at all on these rows says ``metrics.logrank_test(y, tree.apply(X))``.

        Args:
            X: rows, best others than those of training.
            y: their outcome, as in ``fit``, with its weights and entry times.
            train: X and y of the training rows.

        Raises:
            DataError: the data cannot be used, or no two rows can be compared.
        """
        rows, training = self._rows(X, y), self._rows(*train)
        leaf, known = (self._leaf_of(data.frame) for data in (rows, training))
        return metrics.concordance_of_groups(rows.weighted_y, leaf, train=(training.weighted_y, known))
