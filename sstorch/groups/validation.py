"""Whether groups differ, by cross-validation, for one event and for competing causes.

Rows are compared by trees whose gates were placed on other rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.stats import norm

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch.data import SurvivalData
from sstorch.exceptions import DataError, named
from sstorch.metrics.checks import half_width
from sstorch.metrics.groups import risk_table
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.measures import c_harrell_t, limits_of
from sstorch.metrics.outcome import Observed

# Groups differ if their log-rank test is at most at this level, and their concordance is at least so much.
LEVEL, LEAST_CONCORDANCE = 0.05, 0.55
# Share of the rows from which on a group counts as one.
_SMALL_GROUP = 0.05


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
        n_permutations: number of permutations of the covariates against the outcomes; 0 for none.
        permutation_p_value: share of the permutations, including the observed data, in which retrained trees
            have groups of at least this concordance; None without permutations.
        gray_p_value: of competing causes the p-value of Gray's test of equal cumulative incidences
            (:func:`~sstorch.metrics.gray_test`), stratified by fold. Groups of different trees are matched by
            the order of their training incidences.
        c_incidence: of competing causes the concordance of the groups with the cumulative incidence
            (:func:`~sstorch.metrics.concordance_wolbers`), mean over folds; None (not defined) for left
            truncation, start-stop rows and unequal weights.
    """

    c_groups: float
    p_value: float
    n_events: int = 0
    c_lower: float | None = None
    c_upper: float | None = None
    n_permutations: int = 0
    permutation_p_value: float | None = None
    gray_p_value: float | None = None
    c_incidence: float | None = None

    @property
    def differ(self) -> bool:
        """True if a difference was shown: p is at most .05, and the concordance at least .55.

        p is the permutation p-value, if available, else that of the log-rank test. The log-rank test rejects
        in 10 to 12 % of data without an effect (``experiments/groups``) and ignores the direction of the
        difference: the confidence interval of the concordance must also be above .5. With many rows it also
        detects differences that are too small to be relevant.
        """
        return not self.reasons

    @property
    def power(self) -> float:
        """Power of a log-rank test at level 5 % for a hazard ratio of 2 between two fixed halves.

        An upper bound, since trees must first find the halves.

        References:
            Schoenfeld (1981), "The asymptotic properties of nonparametric tests for comparing survival
            distributions", Biometrika 68, 316-319.
        """
        return float(norm.cdf(0.5 * np.sqrt(self.n_events) * np.log(2.0) - norm.ppf(1.0 - 0.5 * LEVEL)))

    @property
    def evidence(self) -> str:
        """Concordance with its limits, and the p-value."""
        limits = ""
        if self.c_lower is not None and self.c_upper is not None:
            limits = f" (95 % confidence interval {self.c_lower:.3f} to {self.c_upper:.3f})"
        p = f"log-rank {p_text(self.p_value)} (anti-conservative)"
        if self.permutation_p_value is not None:
            p = f"{p_text(self.permutation_p_value)} by {self.n_permutations} permutations"
        return f"concordance of the groups alone {self.c_groups:.3f}{limits}, {p}"

    @property
    def doubt(self) -> str:
        """Text for groups that do not `differ`: the reasons and the power."""
        return (
            f"No difference between the groups was shown: {self.reasons}. With {self.n_events} events the "
            f"power to see a hazard ratio of 2 between two halves is {self.power:.2f} at most"
        )

    @property
    def reasons(self) -> str:
        """Why no difference was shown; empty if groups differ."""
        permuted = self.permutation_p_value is not None
        p_value = self.p_value if self.permutation_p_value is None else self.permutation_p_value
        reasons = [
            f"{'permutation' if permuted else 'log-rank'} p above {LEVEL:g}" * (p_value > LEVEL),
            f"concordance below {LEAST_CONCORDANCE:g}" * (self.c_groups < LEAST_CONCORDANCE),
        ]
        if not permuted and not any(reasons) and self.c_lower is not None and self.c_lower <= 0.5:
            reasons.append("the confidence interval of the concordance holds 0.5")
        return " and ".join(filter(None, reasons))

    def lines(self, cause: str) -> list[str]:
        """Text of the difference for a cause, "" for one event."""
        hazard = f"Hazard of {cause}: " if cause else ""
        lines = [f"{hazard}{self.evidence}"]
        if self.gray_p_value is not None:
            concordance = "" if self.c_incidence is None else f"concordance {self.c_incidence:.3f}, "
            gray = f"Gray {p_text(self.gray_p_value)} (anti-conservative)"
            lines.append(f"Cumulative incidence of {cause}: {concordance}{gray}")
        return lines if self.differ else [*lines, f"{hazard}{self.doubt}"]

    def against(self, null: Sequence[GroupDifference]) -> Self:
        """Add the permutation p-value, from differences in permuted data."""
        as_large = sum(each.c_groups >= self.c_groups for each in null)
        p_value = (1 + as_large) / (1 + len(null))
        return replace(self, n_permutations=len(null), permutation_p_value=p_value)


@dataclass(frozen=True)
class GroupValidation:
    """Comparison of groups on held-out rows, by trees trained outside each fold.

    With competing causes there are two null hypotheses per cause. The log-rank test compares cause-specific
    hazards, the event rates of subjects under observation. Gray's test compares cumulative incidences, the
    probabilities of the cause. Groups that differ only in one cause-specific hazard usually differ in the
    incidences of all causes. P-values are not adjusted for the number of causes.

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

    @property
    def agreement(self) -> str:
        """Text with the adjusted Rand index and its definition."""
        shared = (self.n_folds - 2) / (self.n_folds - 1)
        return (
            f"adjusted Rand index {self.ari:.2f}, of all rows by trees that share {shared:.0%} of their "
            "training rows"
        )

    def __str__(self) -> str:
        head = f"Groups of held-out rows, {self.n_folds} folds: {self.n_groups:.3g} groups of 5 % or more"
        lines = [line for name, each in self.causes.items() for line in each.lines(name)]
        return "\n".join([head, self.agreement, *lines])

    def against(self, null: Sequence[GroupValidation]) -> Self:
        """Add permutation p-values, from validations of permuted data."""
        causes = {
            name: each.against([one.causes[name] for one in null]) for name, each in self.causes.items()
        }
        return replace(self, causes=causes)


def p_text(p_value: float) -> str:
    """A p-value for readers."""
    return "p < .0001" if p_value < 1e-4 else f"p = {p_value:.4f}"


def count_groups(group: IntArray, weight: FloatArray | None = None) -> int:
    """Number of groups that have at least 5 % of the weight of some rows, (n,)."""
    counts = np.bincount(group, weight)
    return int((counts >= _SMALL_GROUP * counts.sum()).sum())


def concordance_of_rows(
    group: IntArray, rows: SurvivalData, train_group: IntArray, train: SurvivalData
) -> float:
    """:func:`sstorch.metrics.concordance_of_groups` of rows, with their weights and times of entry."""
    if rows.causes is None:
        return metrics.concordance_of_groups(rows.weighted_y, group, train=(train.weighted_y, train_group))
    if not rows.event.any():
        raise DataError("no row has an event: no two rows are comparable; score more rows")
    n_causes = len(rows.cause_names)
    times = metrics.thinned(np.unique(rows.time[rows.event]), len(rows) * n_causes)
    labels, place = np.unique(group, return_inverse=True)
    members = [train_group == label for label in labels]
    # A group without training rows has the incidences of all.
    parts = [train.subset(inside) if inside.any() else train for inside in members]
    incidence: FloatArray = np.stack([metrics.aalen_johansen(part.weighted_y, times) for part in parts])
    scores = [
        metrics.concordance_harrell(rows.weighted_y.of_cause(k), 1 - incidence[place, k - 1], times)
        for k in range(1, n_causes + 1)
        if (rows.cause == k).any()
    ]
    return float(np.mean(scores))


def from_zero(groups: IntArray) -> IntArray:
    """Groups numbered again from 0 without gaps: one that no tree has would count as a place of risk."""
    return np.unique(groups, return_inverse=True)[1].reshape(groups.shape)


def held_out_groups(data: SurvivalData, folds: IntArray, groups: IntArray) -> GroupValidation:
    """Validate groups that the trees of the folds have made.

    `folds` is the fold of each row, 0 .. K - 1, (n,), and `groups` the group of each row in each tree,
    (K, n); tree k was trained on the rows outside fold k.
    """
    groups = from_zero(groups)
    counts = [
        count_groups(group[folds == fold], data.sample_weight[folds == fold])
        for fold, group in enumerate(groups)
    ]
    causes = {}
    for number, name in enumerate(("",) if data.causes is None else data.cause_names, 1):
        with named(f"cause {name}" if name else ""):
            found = _difference(data.of_cause(number) if name else data, folds, groups)
        causes[name] = _with_incidence(found, data, folds, groups, number, name) if name else found
    ari = float(metrics.adjusted_rand_index(groups)[np.triu_indices(len(groups), 1)].mean())
    return GroupValidation(len(groups), float(np.mean(counts)), ari, causes)


def _difference(data: SurvivalData, folds: IntArray, groups: IntArray) -> GroupDifference:
    """Difference of groups in the hazard of one event."""
    concordances, errors, place = [], [], np.zeros(len(data), dtype=np.int64)
    n_groups = int(groups.max()) + 1
    for fold, group in enumerate(groups):
        inside = folds == fold
        train, test = data.subset(~inside), data.subset(inside)
        try:
            concordances.append(concordance_of_rows(group[inside], test, group[~inside], train))
        except DataError as error:
            raise DataError(
                f"fold {fold} of {len(groups)} has no comparable pairs, choose fewer folds: {error}"
            ) from error
        area = _area_under_survival(train, group[~inside], n_groups)
        place[inside] = places_of_groups(area, group[~inside])[group[inside]]
        errors.append(_error_of_concordance(place[inside], test))
    c_groups = float(np.mean(concordances))
    of_folds = float(np.sqrt(np.square(errors).sum())) / len(errors)
    limits = limits_of(c_groups, of_folds, half_width(0.95), "logit")
    lower, upper = (None if np.isnan(end) else end for end in (limits.lower, limits.upper))
    test_of_groups = metrics.logrank_test(data.weighted_y, place, strata=folds)
    return GroupDifference(c_groups, test_of_groups.p_value, int(data.event.sum()), lower, upper)


def _with_incidence(
    found: GroupDifference, data: SurvivalData, folds: IntArray, groups: IntArray, cause: int, name: str
) -> GroupDifference:
    """Add the difference of groups in the cumulative incidence of a cause."""
    plain = not data.entry.any() and data.subject is None and data.uneven_weight is None
    places, concordances = np.zeros(len(data), dtype=np.int64), []
    for fold, group in enumerate(groups):
        inside = folds == fold
        train, test = data.subset(~inside), data.subset(inside)
        without = _time_without(train, group[~inside], int(groups.max()) + 1, cause)
        places[inside] = places_of_groups(without, group[~inside])[group[inside]]
        if plain:
            concordances.append(_concordance(test, train, -without[group[inside]], cause, name))
    gray = metrics.gray_test(data.weighted_y, places, cause, strata=folds).p_value
    return replace(found, gray_p_value=gray, c_incidence=float(np.mean(concordances)) if plain else None)


def _error_of_concordance(place: IntArray, rows: SurvivalData) -> float:
    """Standard error of the concordance of held-out rows by the place of their groups; NaN if unknown."""
    survival = 1.0 - place / max(int(place.max()), 1)
    try:
        at = HorizonRows.of(rows.weighted_y, survival, float(rows.time.max()))
        return at.error_of(c_harrell_t(at)[1])
    except DataError:
        return np.nan


def _area_under_survival(train: SurvivalData, group: IntArray, n_groups: int) -> FloatArray:
    """Area under the Kaplan-Meier estimate of each group, (n_groups,)."""
    times = train.event_times
    rows = Observed(train.time, train.event, train.entry, train.sample_weight)
    table = risk_table(rows, group, n_groups, times)
    width = np.diff(times, append=train.time.max())
    return np.asarray(times[0] + table.survival() @ width)


def places_of_groups(time_without_event: FloatArray, group: IntArray) -> IntArray:
    """Place of each group in the order of risk, 0 (lowest) .. n_groups - 1.

    Fewer groups are spread over the places, so that the extremes of all trees correspond; a group without
    rows in training, (n,), is in the middle. A longer `time_without_event`, (n_groups,), is a lower risk.
    """
    n_groups, present = len(time_without_event), np.unique(group)
    place = np.full(n_groups, (n_groups - 1) // 2)
    ranks = np.linspace(0, n_groups - 1, len(present)).round() if len(present) > 1 else [(n_groups - 1) // 2]
    place[present[np.argsort(-time_without_event[present], kind="stable")]] = ranks
    return place


def _time_without(train: SurvivalData, group: IntArray, n_groups: int, cause: int) -> FloatArray:
    """Area above the cumulative incidence of a cause up to its last event, of each group, (n_groups,).

    Groups without training rows have that of all rows.
    """
    times = np.unique(train.time[train.cause == cause])
    width = np.diff(times, prepend=0.0)

    def area(rows: SurvivalData) -> float:
        incidence = metrics.aalen_johansen(rows.weighted_y, times)[cause - 1]
        return float(width @ (1.0 - np.append(0.0, incidence[:-1])))

    members = [group == number for number in range(n_groups)]
    return np.array([area(train.subset(rows) if rows.any() else train) for rows in members])


def _concordance(test: SurvivalData, train: SurvivalData, risk: FloatArray, cause: int, name: str) -> float:
    """Wolbers' concordance up to the last training event of the cause."""
    tau = float(train.time[train.cause == cause].max())
    try:
        return metrics.concordance_wolbers(test.y, risk, cause, train=train.y, tau=tau)
    except DataError as error:
        raise DataError(
            f"a fold has no comparable pair of cause {name}; choose fewer folds: {error}"
        ) from error
