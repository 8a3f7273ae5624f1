"""Whether groups are stable over resamples, and differ on rows that did not place the gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_integer, check_tree
from sstorch.data import SurvivalData, folds_of
from sstorch.data.folds import split
from sstorch.exceptions import ConfigError, DataError, named
from sstorch.groups.recalibration import SurvivalTree
from sstorch.metrics.checks import half_width
from sstorch.metrics.grids import thinned
from sstorch.metrics.groups import adjusted_rand_index
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.measures import c_harrell_t, limits_of

# Columns that the text names.
_NAMED = 3


def stability(
    tree: SurvivalTree, X: object, y: object, n_resamples: int = 50, sample_weight: object = None
) -> Stability:
    """Estimate the stability of groups and of their columns over resamples of the subjects.

    Each resample trains a tree with the parameters of the estimator; the weight of a subject is multiplied by
    the number of draws, and an exact search chooses the size again. ``print`` and ``tree.summary()`` show the
    result. A loaded soft tree uses the default trainer.

    ``min_leaf`` and ``min_events`` of an exact tree count the distinct rows of a resample, about 63 %.

    Args:
        tree: fitted.
        X: training rows.
        y: outcome of the rows, as in ``fit``.
        n_resamples: number of resamples.
        sample_weight: (n,), >= 0, as in ``fit``.

    Raises:
        DataError: the data are invalid, or a resample has no event, or no event of a cause.
        ConfigError: ``n_resamples`` is not an integer >= 1.

    References:
        Hubert and Arabie (1985), "Comparing partitions", Journal of Classification 2, 193-218. Philipp,
        Rusch, Hornik and Strobl (2018), "Measuring the stability of results from supervised statistical
        learning", Journal of Computational and Graphical Statistics 27, 685-700.
    """
    check_tree(tree, "_can_divide")
    data = tree._rows(X, y, sample_weight)
    splits, _ = resamples(data, n_resamples, tree._seed)
    others = [groups_of(data.frame) for groups_of in tree._trained(data, splits)]
    own = tree._partition(data.frame)
    leaves = np.stack([other.leaf for other in others])
    # Numbers as positions, and back: a number that no tree has would be matched as a group without rows.
    numbers, place = np.unique([own.leaf, *leaves], return_inverse=True)
    place = place.reshape(len(leaves) + 1, -1)
    matched = numbers[np.stack([_matched(place[0], leaf, len(numbers)) for leaf in place[1:]])]
    between = adjusted_rand_index(np.concatenate([own.leaf[None], leaves]))
    pairs = between[1:, 1:][np.triu_indices(len(leaves), 1)]
    tree._chosen.stability_ = found = Stability(
        groups=own.leaf,
        resampled=matched,
        ari=float(pairs.mean()) if len(pairs) else float("nan"),
        ari_of_tree=float(between[0, 1:].mean()),
        moves=(matched != own.leaf).mean(axis=0),
        columns=pd.Series(
            {name: np.mean([name in other.columns for other in others]) for name in data.frame}
        ),
    )
    return found


@dataclass(frozen=True, eq=False)
class Stability:
    """Stability of groups over trees fitted to resamples.

    Attributes:
        groups: group of each row in the tree, shape (n,).
        resampled: group of each row in each of the K trees of resamples, shape (K, n). Groups have the number
            of the group of the tree with the most shared rows; additional groups have further numbers.
        ari: adjusted Rand index of the groups of two resamples, mean over pairs: 1 for identical groups, 0 on
            average for agreement by chance. Consecutive rows of a subject with equal covariates count as one.
        ari_of_tree: adjusted Rand index of the tree and a resample, mean over resamples.
        moves: share of the resamples in which the group of a row differs from the tree, shape (n,).
        columns: share of the resamples in which a gate uses a column (bootstrap inclusion frequency), by
            column.
    """

    groups: IntArray
    resampled: IntArray
    ari: float
    ari_of_tree: float
    moves: FloatArray
    columns: pd.Series

    def table(self) -> pd.DataFrame:
        """Frame by group: ``rows``, mean ``moves``, share of rows that ``stay`` in most of the resamples."""
        grouped = pd.DataFrame({"group": self.groups, "moves": self.moves}).groupby("group")["moves"]
        parts = {"rows": grouped.size(), "moves": grouped.mean()}
        return pd.DataFrame(parts | {"stay": grouped.apply(lambda moves: (moves < 0.5).mean())})

    def __str__(self) -> str:
        lines = [
            f"Stability of the groups over {len(self.resampled)} resamples",
            f"adjusted Rand index: {self.ari:.2f} between resamples, {self.ari_of_tree:.2f} with the tree",
            f"a row changes its group in {100 * self.moves.mean():.0f} % of the resamples",
        ]
        for group, row in self.table().iterrows():
            lines.append(
                f"  group {group}: {int(row['rows'])} rows, change in {100 * row['moves']:.0f} %; "
                f"{100 * row['stay']:.0f} % of them stay in most resamples"
            )
        used = self.columns[self.columns > 0].sort_values(ascending=False, kind="stable")
        named = ", ".join(f"{name} ({100 * share:.0f} %)" for name, share in used[:_NAMED].items())
        more = f" and {len(used) - _NAMED} more" if len(used) > _NAMED else ""
        return "\n".join([*lines, f"gates use {named or 'no column'}{more}"])


def _matched(group: IntArray, leaf: IntArray, n_groups: int) -> IntArray:
    """Leaves renumbered one to one, so that as many rows as possible have the number of their group."""
    shared = np.bincount(group * n_groups + leaf, minlength=n_groups**2).reshape(n_groups, n_groups)
    groups, leaves = linear_sum_assignment(shared, maximize=True)
    number = np.empty(n_groups, dtype=np.int64)
    number[leaves] = groups
    return number[leaf]


def resamples(data: SurvivalData, n_resamples: int, seed: int) -> tuple[list[SurvivalData], IntArray]:
    """Weighted rows and counts (K, n) of bootstrap resamples of subjects; DataError: one lacks events."""
    count = check_integer("n_resamples", n_resamples, 1)
    generator = np.random.default_rng((seed, count))
    n_drawn = len(data) if data.subject is None else int(data.subject.max()) + 1
    shares = np.full(n_drawn, 1 / n_drawn)
    counts = np.stack([generator.multinomial(len(shares), shares) for _ in range(count)])
    if data.subject is not None:
        counts = counts[:, data.subject]
    splits = [data.subset(drawn > 0) for drawn in counts]
    for part, drawn in zip(splits, counts, strict=True):
        part.sample_weight = part.sample_weight * drawn[drawn > 0]
    for number, name in enumerate(("",) if data.causes is None else data.cause_names, 1):
        if not all((split.cause == number).any() for split in splits):
            events = f"{(data.cause == number).sum()} events" + (f" of cause {name}" if name else "")
            raise DataError(
                f"a resample of {len(data)} rows with {events} has none: a bootstrap needs more events"
            )
    return splits, counts


# Groups differ if the log-rank test has at most this p-value, and the concordance is at least so much.
LEVEL, LEAST_CONCORDANCE = 0.05, 0.55
# Share of the rows from which on a group counts as one.
_SMALL_GROUP = 0.05


def validate_groups(
    tree: SurvivalTree,
    X: object,
    y: object,
    n_folds: int = 5,
    sample_weight: object = None,
    random_state: int = 0,
) -> GroupValidation:
    """Test whether groups obtained by the same procedure differ on held-out rows.

    Trees with the parameters of the estimator are trained outside each fold and assign groups to the held-out
    rows. Folds keep the rows of a subject together and are stratified by event or cause. A log-rank test,
    stratified by fold, compares survival; with competing causes it compares each cause-specific hazard, and
    Gray's test each cumulative incidence. ``tree.summary()`` shows the result, which is saved with the tree.
    An exact search chooses the size again outside each fold. For a soft tree, earlier choices, such as of
    parameters, are not repeated; a loaded tree uses the default trainer.

    Args:
        tree: fitted.
        X: training rows.
        y: outcome of the rows, as in ``fit``.
        n_folds: number of folds.
        sample_weight: (n,), >= 0, as in ``fit``. Tests then use the robust variance, which does not depend
            on the scale of the weights (:func:`~sstorch.metrics.logrank_test`).
        random_state: seed of the folds.

    Raises:
        DataError: the data are invalid or have too few events, or events of a cause, for the number of folds.
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
    data.refuse_intervals("validate_groups")
    seed = check_integer("random_state", random_state, 0)
    folds = folds_of(data, check_integer("n_folds", n_folds, 2), seed)

    trained = tree._trained(data, [fold.train for fold in split(data, folds)])
    found = held_out_groups(data, folds, np.stack([groups_of(data.frame).leaf for groups_of in trained]))
    tree._chosen.group_validation_ = found
    return found


@dataclass(frozen=True)
class GroupDifference:
    """Difference of the groups on held-out rows, for the event or for the hazard of one of several causes.

    Attributes:
        c_groups: concordance of a model with the group as its only covariate
            (:func:`~sstorch.metrics.concordance_of_groups`), other causes censored, mean over folds.
        p_value: p-value of the log-rank test of no difference between groups, stratified by fold. Groups of
            different trees are matched by their order of risk in training. The test is anti-conservative,
            since folds share training rows.
        n_events: number of events.
        c_lower: lower 95 % confidence limit of `c_groups`, for fixed trees; None if the variance is not
            defined.
        c_upper: upper 95 % confidence limit of `c_groups`.
        gray_p_value: of competing causes the p-value of Gray's test of equal cumulative incidences
            (:func:`~sstorch.metrics.gray_test`), stratified by fold. Groups of different trees are matched by
            the order of their training incidences.
    """

    c_groups: float
    p_value: float
    n_events: int = 0
    c_lower: float | None = None
    c_upper: float | None = None
    gray_p_value: float | None = None

    @property
    def differ(self) -> bool:
        """True if a difference was shown: p is at most .05, and the concordance at least .55.

        The log-rank test rejects in 10 to 12 % of data without an effect (``experiments/groups``) and ignores
        the direction of the difference: the confidence interval of the concordance must also be above .5.
        With many rows it also detects differences that are too small to be relevant.
        """
        return not self.doubt

    @property
    def power(self) -> float:
        """Upper bound of the power of a log-rank test (level .05) for a hazard ratio of 2 of two halves.

        Schoenfeld (1981), Biometrika 68, 316-319.
        """
        return float(norm.cdf(0.5 * np.sqrt(self.n_events) * np.log(2.0) - norm.ppf(1.0 - 0.5 * LEVEL)))

    @property
    def evidence(self) -> str:
        """Concordance with its limits, and the p-value, as text."""
        limits = ""
        if self.c_lower is not None and self.c_upper is not None:
            limits = f" (95 % confidence interval {self.c_lower:.3f} to {self.c_upper:.3f})"
        test = _p_text("log-rank", self.p_value)
        return f"concordance of the groups alone {self.c_groups:.3f}{limits}, {test}"

    @property
    def doubt(self) -> str:
        """Why no difference was shown, and the power; empty if groups differ."""
        reasons = [f"log-rank p above {LEVEL:g}"] if self.p_value > LEVEL else []
        if self.c_groups < LEAST_CONCORDANCE:
            reasons.append(f"concordance below {LEAST_CONCORDANCE:g}")
        if not reasons and self.c_lower is not None and self.c_lower <= 0.5:
            reasons.append("the confidence interval of the concordance holds 0.5")
        if not reasons:
            return ""
        return (
            f"No difference between the groups was shown: {' and '.join(reasons)}. With {self.n_events} "
            f"events the power to see a hazard ratio of 2 between two halves is {self.power:.2f} at most"
        )


@dataclass(frozen=True)
class GroupValidation:
    """Comparison of groups on held-out rows, by trees trained outside each fold.

    With competing causes the log-rank test compares cause-specific hazards, Gray's test cumulative
    incidences, in which groups usually differ if one hazard differs. P-values are not adjusted for the number
    of causes.

    Attributes:
        n_folds: number of trees, each trained on the rows outside its fold.
        n_groups: number of groups with at least 5 % of the weight of their fold, mean over folds.
        ari: adjusted Rand index of the groups of two trees on all rows, mean over pairs of trees. Two trees
            share most training rows, and every row is a training row of at least one of them.
        causes: difference of the groups by name of the cause; "" for one event.
    """

    n_folds: int
    n_groups: float
    ari: float
    causes: Mapping[str, GroupDifference]

    @property
    def first(self) -> GroupDifference:
        """The difference for the event, or for the first cause."""
        return next(iter(self.causes.values()))

    @property
    def differ(self) -> bool:
        """True if groups differ in the hazard of at least one cause, see :class:`GroupDifference`."""
        return any(each.differ for each in self.causes.values())

    def __str__(self) -> str:
        shared = (self.n_folds - 2) / (self.n_folds - 1)
        lines = [
            f"Groups of held-out rows, {self.n_folds} folds: {self.n_groups:.3g} groups of 5 % or more",
            f"adjusted Rand index {self.ari:.2f}, of all rows by trees that share {shared:.0%} of their "
            "training rows",
        ]
        for name, each in self.causes.items():
            hazard = f"Hazard of {name}: " if name else ""
            lines.append(f"{hazard}{each.evidence}")
            if each.gray_p_value is not None:
                lines.append(f"Cumulative incidence of {name}: {_p_text('Gray', each.gray_p_value)}")
            lines += [f"{hazard}{each.doubt}"] if each.doubt else []
        return "\n".join(lines)


def _p_text(test: str, p_value: float) -> str:
    shown = "p < .0001" if p_value < 1e-4 else f"p = {p_value:.4f}"
    return f"{test} {shown} (anti-conservative)"


def count_groups(group: IntArray, weight: FloatArray | None = None) -> int:
    """Number of groups that have at least 5 % of the weight of some rows, (n,)."""
    counts = np.bincount(group, weight)
    return int((counts >= _SMALL_GROUP * counts.sum()).sum())


def concordance_of_rows(
    group: IntArray, rows: SurvivalData, train_group: IntArray, train: SurvivalData
) -> float:
    """Concordance of groups (n,), by their curves in the training rows; of causes the mean."""
    if rows.causes is None:  # counts by group are faster than curves of rows
        return metrics.concordance_of_groups(rows.weighted_y, group, train=(train.weighted_y, train_group))
    if not rows.event.any():
        raise DataError("no row has an event: no two rows are comparable; score more rows")
    causes = np.unique(rows.cause[rows.event])
    times = thinned(np.unique(rows.time[rows.event]), len(rows) * len(rows.cause_names))
    labels, place = np.unique(group, return_inverse=True)
    parts = [_of_group(train, train_group, label) for label in labels]
    incidence: FloatArray = np.stack([metrics.aalen_johansen(part.weighted_y, times) for part in parts])
    scores = [
        metrics.concordance_harrell(rows.weighted_y.of_cause(int(k)), 1 - incidence[place, k - 1], times)
        for k in causes
    ]
    return float(np.mean(scores))


def _of_group(train: SurvivalData, group: IntArray, number: int) -> SurvivalData:
    """Training rows of a group, or all where it has none."""
    inside = group == number
    return train.subset(inside) if inside.any() else train


def held_out_groups(data: SurvivalData, folds: IntArray, groups: IntArray) -> GroupValidation:
    """Validate groups (K, n) by the trees trained outside each fold; `folds` is 0 .. K - 1, (n,)."""
    # Numbered from 0 without gaps: a number that no tree has would count as a place of risk.
    groups = np.unique(groups, return_inverse=True)[1].reshape(groups.shape)
    counts = [
        count_groups(group[folds == fold], data.sample_weight[folds == fold])
        for fold, group in enumerate(groups)
    ]
    causes = {}
    for number, name in enumerate(("",) if data.causes is None else data.cause_names, 1):
        with named(f"cause {name}" if name else ""):
            causes[name] = _difference(data.of_cause(name) if name else data, folds, groups)
            if name:
                gray = _gray_p_value(data, folds, groups, number)
                causes[name] = replace(causes[name], gray_p_value=gray)
    ari = float(adjusted_rand_index(groups)[np.triu_indices(len(groups), 1)].mean())
    return GroupValidation(len(groups), float(np.mean(counts)), ari, causes)


def _difference(data: SurvivalData, folds: IntArray, groups: IntArray) -> GroupDifference:
    """Difference of groups in the hazard of one event."""
    concordances, errors, place = [], [], np.zeros(len(data), dtype=np.int64)
    for fold, group in enumerate(groups):
        inside = folds == fold
        train, test = data.subset(~inside), data.subset(inside)
        with named(f"fold {fold} of {len(groups)} has no comparable pairs, choose fewer folds"):
            concordances.append(concordance_of_rows(group[inside], test, group[~inside], train))
        without = _time_without(train, group[~inside], int(groups.max()) + 1, 1, float(train.time.max()))
        place[inside] = places_of_groups(without, group[~inside])[group[inside]]
        errors.append(_error_of_concordance(place[inside], test))
    c_groups = float(np.mean(concordances))
    of_folds = float(np.sqrt(np.square(errors).sum())) / len(errors)
    limits = limits_of(c_groups, of_folds, half_width(0.95), "logit")
    lower, upper = (None if np.isnan(end) else end for end in (limits.lower, limits.upper))
    test_of_groups = metrics.logrank_test(data.weighted_y, place, strata=folds)
    return GroupDifference(c_groups, test_of_groups.p_value, int(data.event.sum()), lower, upper)


def _gray_p_value(data: SurvivalData, folds: IntArray, groups: IntArray, cause: int) -> float:
    """P-value of Gray's test of the cumulative incidences of a cause."""
    place = np.zeros(len(data), dtype=np.int64)
    for fold, group in enumerate(groups):
        inside = folds == fold
        train = data.subset(~inside)
        last = float(train.time[train.cause == cause].max())
        without = _time_without(train, group[~inside], int(groups.max()) + 1, cause, last)
        place[inside] = places_of_groups(without, group[~inside])[group[inside]]
    return metrics.gray_test(data.weighted_y, place, cause, strata=folds).p_value


def _error_of_concordance(place: IntArray, rows: SurvivalData) -> float:
    """Standard error of the concordance of held-out rows by the place of their groups; NaN if unknown."""
    survival = 1.0 - place / max(int(place.max()), 1)
    try:
        at = HorizonRows.of(rows.weighted_y, survival, float(rows.time.max()))
        return at.error_of(c_harrell_t(at)[1])
    except DataError:
        return np.nan


def _time_without(train: SurvivalData, group: IntArray, n_groups: int, cause: int, end: float) -> FloatArray:
    """Mean time without a cause up to a time, the area above its incidence, by group, (n_groups,)."""
    times = np.unique(train.time[train.cause == cause])
    width = np.diff(times, prepend=0.0, append=end)
    parts = (_of_group(train, group, number).weighted_y for number in range(n_groups))
    incidence = np.stack([metrics.aalen_johansen(part, times)[cause - 1] for part in parts])
    return np.asarray((1.0 - np.pad(incidence, ((0, 0), (1, 0)))) @ width)


def places_of_groups(time_without_event: FloatArray, group: IntArray) -> IntArray:
    """Place of each group in the order of risk by its mean time, 0 (lowest) .. n_groups - 1."""
    # Fewer groups are spread, so that extremes correspond; one without training rows is in the middle.
    n_groups, present = len(time_without_event), np.unique(group)
    place = np.full(n_groups, (n_groups - 1) // 2)
    ranks = np.linspace(0, n_groups - 1, len(present)).round() if len(present) > 1 else [(n_groups - 1) // 2]
    place[present[np.argsort(-time_without_event[present], kind="stable")]] = ranks
    return place
