"""Functions of a fitted tree and rows: tables of its groups, their stability and their validation.

Trees are soft or exact; which table and which test is made follows from the type of the outcome they were
trained on, one event or competing causes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import IntArray
from sstorch.base import check_times
from sstorch.checks import check_integer, check_tree
from sstorch.data import SurvivalData, folds_of
from sstorch.data.folds import split, train_outside_score_inside
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.competing_validation import CompetingGroupValidation, held_out_groups_of_causes
from sstorch.groups.hooks import GroupedTree, LeafOf
from sstorch.groups.resampling import Resamples
from sstorch.groups.stability import Stability, agreement
from sstorch.groups.table import table_of
from sstorch.groups.validation import GroupValidation, concordance_of_rows, held_out_groups
from sstorch.metrics.weights import WeightKind, check_weighting


def group_table(
    tree: GroupedTree,
    X: object,
    y: object,
    horizons: npt.ArrayLike | None = None,
    n_resamples: int = 0,
    confidence: float = 0.95,
    sample_weight: object = None,
    sample: Resamples | None = None,
    weights: WeightKind = "sampling",
) -> pd.DataFrame:
    """Observed and predicted survival, or incidences, of the rows of each group, with confidence intervals.

    Of one event the table has Kaplan-Meier medians and survival, of competing causes the Aalen-Johansen
    incidence of each cause. Start-stop rows of a subject count as one subject; its consecutive rows with
    equal covariates are merged, so that the table does not depend on where the follow-up is split.

    On rows that the tree was not trained on the estimates are honest as they are. On its training rows
    they are not: gates or questions were placed where these rows differ, so the groups look further apart
    than they are. With ``n_resamples`` they are corrected. Each resample trains the tree anew; the
    difference between Kaplan-Meier of its groups in the rows that were drawn and in those that were not,
    times .632, is its optimism, as in Efron's estimate of prediction error. Groups of different trees
    correspond by their place in the order of risk (mean of their curves): a group takes the optimism of
    those that hold the same shares of all rows. The mean over resamples, at each time, is taken off the
    curve (of each cause off its incidence), and medians are read from what is left. Limits are those of the
    corrected curve on the scale of log(-log S), of incidences log(-log(1 - F)), widened on both sides by the
    correction itself: they allow for an optimism between none and twice what was estimated.

    The naive intervals are pointwise: log(-log S) with Greenwood's variance; that of the median holds the
    times at which the band holds 1/2 (Brookmeyer and Crowley). Those of incidences are on the scale of
    log(-log F), with the variance of :func:`~sstorch.metrics.aalen_johansen_error`, as R's
    ``survfit(conf.type="log-log")``.

    Corrected intervals are about this tree's groups as wholes, not about each subject in them, and hold
    at each time, not at all at once. In simulations of soft trees those of 95 % covered 96 to 99 % of the
    true medians, the naive ones 58 to 82 % (``experiments/groups``); where the groups do not differ at
    all, a part of the bias stays in the corrected estimates. Resamples do not see what was chosen before,
    such as parameters; for that keep test rows.

    Args:
        tree: fitted.
        X: rows; with ``n_resamples`` those of training.
        y: their outcome, as in ``fit``.
        horizons: times at which survival or incidences are given; if None two round times that divide the
            training event times into about three.
        n_resamples: for the correction, 50 or more; 0 for none.
        confidence: of the intervals.
        sample_weight: (n,), >= 0.
        sample: as of :func:`stability`, instead of ``n_resamples``.
        weights: ``"sampling"``: intervals do not depend on the scale of the weights, and unequal weights
            widen them (infinitesimal jackknife, :class:`~sstorch.metrics.KaplanMeierBand`);
            ``"frequency"``: how often each row was observed, as integers. Resamples draw rows with their
            weights in both cases.

    Returns:
        A row for each group with rows, indexed by ``group``; columns of two levels, ``quantity`` and
        ``statistic``. Numbers of ``rows`` and ``events`` (of causes ``events <cause>``), unweighted;
        ``median`` with ``estimate``, ``lower`` and ``upper``, +inf where it is not reached; ``S(t)``, of
        causes ``F(t) <cause>``, with these and ``model``, the weighted mean of the predictions. Estimates
        are nan beyond the last row observed, limits of an incidence also where it is 0 or 1. With resamples
        there are also ``corrected``, ``corrected lower`` and ``corrected upper``.

    Raises:
        DataError: the data cannot be used, hold too few events, or frequency weights are no integers.
        ConfigError: an argument is out of range.

    References:
        Efron (1983), "Estimating the error rate of a prediction rule", Journal of the American
        Statistical Association 78, 316-331. Harrell (2015), Regression Modeling Strategies, 2nd edition,
        section 5.3. LeBlanc and Crowley (1993), "Survival trees by goodness of split", Journal of the
        American Statistical Association 88, 457-467, who correct split statistics likewise.
    """
    check_tree(tree, "_can_divide")
    given = tree._rows(X, y, sample_weight)
    data, at = given.joined(), None if horizons is None else check_times(horizons)
    if sample is None and check_integer("n_resamples", n_resamples, 0):
        sample = tree._resampled(given, n_resamples)
    resampled = None
    if sample is not None:
        if sample.draws is None or sample.draws.shape[1] != len(given):
            raise ConfigError("sample must be what bootstrap_trees gives for the same rows")
        resampled = sample.apply(data.frame), sample.draws[:, given.run_ends]
    table = table_of(tree, data, at, confidence, resampled, weights)
    if sample is not None:
        tree._chosen.group_table_ = table
    return table


def stability(
    tree: GroupedTree,
    X: object,
    y: object,
    n_resamples: int = 50,
    sample_weight: object = None,
    sample: Resamples | None = None,
) -> Stability:
    """Stability of the groups, and of the columns that make them, over resamples of the subjects.

    Trees with the parameters of the estimator are trained on each resample, in which a subject has as
    weight how often it was drawn, times its own; those of an exact search choose their size again.
    ``print`` shows the result, as does ``tree.summary()``, and :func:`~sstorch.plots.plot_stability` draws
    it. A loaded soft tree does not know its trainer.

    ``min_leaf`` and ``min_events`` of an exact tree count the distinct rows of a resample, about 63 %.

    Args:
        tree: fitted.
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
    check_tree(tree, "_can_divide")
    data = tree._rows(X, y, sample_weight)
    sample = tree._resampled(data, n_resamples) if sample is None else sample
    found = agreement(tree._partition(data.frame), sample, data.frame, data.run_ends)
    tree._chosen.stability_ = found
    return found


def validate_groups(
    tree: GroupedTree,
    X: object,
    y: object,
    n_folds: int = 5,
    sample_weight: object = None,
    random_state: int = 0,
    weights: WeightKind = "sampling",
    n_permutations: int = 0,
) -> GroupValidation | CompetingGroupValidation:
    """Whether groups that are made as these differ on held-out rows.

    Trees with the parameters of the estimator are trained outside each fold; folds keep the rows of a
    subject together and are stratified by event or cause. The held-out rows then get their groups. A
    log-rank test, stratified by fold, compares their survival, and where causes compete the hazard of
    each cause, and Gray's test its cumulative incidence. Consecutive rows of a subject with equal
    covariates are merged first. ``tree.summary()`` shows the result, and it is saved with the tree. An exact
    search chooses its size again outside each fold; a soft tree does not include choices that were made
    before, such as of parameters, nor a loaded one of its trainer.

    Args:
        tree: fitted.
        X: training rows.
        y: their outcome, as in ``fit``.
        n_folds: number of folds.
        sample_weight: (n,), >= 0, as in ``fit``.
        random_state: seed of the folds.
        weights: ``"sampling"``: tests have the robust variance, which does not depend on the scale of the
            weights (:func:`~sstorch.metrics.logrank_test`); ``"frequency"``: how often each row was
            observed, as integers.
        n_permutations: of the covariates against the outcomes. Trees are trained anew outside each fold of
            each, 99 take about a hundred times as long as none; the p-value, of the concordance, then holds
            its level, which that of the log-rank test does not.

    Raises:
        DataError: the data cannot be used, hold too few events, or events of a cause, for so many folds,
            frequency weights are no integers, or subjects with several rows are to be permuted.
        ConfigError: the tree has depth 0, or an argument is out of range.

    References:
        Gray (1988), Annals of Statistics 16, 1141-1154. Simon, Subramanian, Li and Menezes (2011), "Using
        cross-validation to evaluate predictive accuracy of survival risk classifiers based on
        high-dimensional data", Briefings in Bioinformatics 12, 203-214.
    """
    check_tree(tree, "_can_divide")
    if not tree._can_divide:
        raise ConfigError("a tree of depth 0 has one group: there is nothing to validate")
    data = tree._rows(X, y, sample_weight)
    data.refuse_intervals()
    check_weighting(data.sample_weight, len(data), weights)  # before any work
    data = data.joined()
    seed, count = (
        check_integer("random_state", random_state, 0),
        check_integer("n_permutations", n_permutations, 0),
    )
    folds = folds_of(data, check_integer("n_folds", n_folds, 2), seed)
    if count and data.subject is not None:
        raise DataError(
            "id: covariates of subjects with several rows cannot be exchanged; use n_permutations=0"
        )

    def groups_of(rows: SurvivalData) -> GroupValidation | CompetingGroupValidation:
        def train(splits: list[SurvivalData]) -> Iterator[tuple[int, LeafOf]]:
            yield from enumerate(tree._trained(rows, splits))

        parts = train_outside_score_inside(split(rows, folds), train, lambda _, leaf_of: leaf_of(rows.frame))
        # Positions instead of numbers: one that no tree has would count as a place in the order of risk.
        made = np.stack(list(parts))
        validate = held_out_groups if rows.causes is None else held_out_groups_of_causes
        return validate(rows, folds, np.unique(made, return_inverse=True)[1].reshape(made.shape), weights)

    found = groups_of(data)
    if count:
        rng = np.random.default_rng((seed, count))
        null = [groups_of(_permuted(data, rng.permutation(len(data)))) for _ in range(count)]
        found = found.against(null)
    tree._chosen.group_validation_ = found
    return found


def _permuted(data: SurvivalData, order: IntArray) -> SurvivalData:
    """The same outcomes with the covariates of other rows."""
    rows = data.subset(np.arange(len(data)))
    rows.frame = data.frame.iloc[order].reset_index(drop=True)
    rows.groups = None if data.groups is None else data.groups.subset(order)
    return rows


def concordance_of_groups(tree: GroupedTree, X: object, y: object, train: tuple[object, object]) -> float:
    """Concordance of a model whose only covariate is the group of a row.

    It predicts Kaplan-Meier of the training rows of the group, and of competing causes the Aalen-Johansen
    incidences, whose concordances are averaged over causes as by ``tree.score``; 0.5 means that the groups do
    not differ. Whether they differ at all on these rows is tested by
    ``metrics.logrank_test(y, tree.apply(X))``, of causes by ``metrics.gray_test``.

    Args:
        tree: fitted.
        X: rows, best others than those of training.
        y: their outcome, as in ``fit``, with its weights and entry times.
        train: X and y of the training rows.

    Raises:
        DataError: the data cannot be used, or no two rows can be compared.
    """
    check_tree(tree, "_can_divide")
    rows, training = tree._rows(X, y), tree._rows(*train)
    leaf, known = (tree._leaf_of(data.frame) for data in (rows, training))
    return concordance_of_rows(leaf, rows, known, training)
