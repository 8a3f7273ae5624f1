"""Exact survival trees."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from sstorch._types import FloatArray, IntArray
from sstorch.base import CurveKind
from sstorch.checks import check_after, counted
from sstorch.data import SurvivalData
from sstorch.data.target import steps_up_to
from sstorch.deploy.calculator import Field
from sstorch.deploy.exports import Counts, Deployed
from sstorch.deploy.expression import Formula
from sstorch.exact.binarize import Binarizer, Preset
from sstorch.exact.estimators.outcome import Objective, OutcomeTree, training_rows
from sstorch.exact.estimators.search import SEARCH, Search
from sstorch.exact.formula import tree_formula
from sstorch.exact.recalibration import baseline_report, check_baseline, leaf_factors
from sstorch.exact.tree import (
    LeafCurveKind,
)
from sstorch.exceptions import ConfigError, named
from sstorch.groups import Recalibration
from sstorch.groups.recalibration import recalibration_texts, recalibrations
from sstorch.groups.table import groups_text, survival_texts
from sstorch.groups.tree import RESULTS, Recalibrate
from sstorch.memory import check_room
from sstorch.metrics.curves import check_alive


class ExactSurvivalTree(OutcomeTree):
    """The common part of `OptimalSurvivalTree` and `OptimalSurvivalTreeCV`; not for use by itself."""

    _format = "sstorch.optimal_survival_tree"

    @property
    def leaf_rows_(self) -> IntArray:
        """Rows of each group that the tables count, (L,)."""
        return self.leaf_table_["rows"].to_numpy()

    @property
    def time_unit_(self) -> str | None:
        """Unit of the times; None if not given."""
        check_is_fitted(self, "tree_")
        return self._settings.time_unit

    # ------------------------------------------------------------------ predict

    def predict(self, X: object, cause: int | str = 1) -> FloatArray:
        """Risk of each row (n,), the sum of H(t | x) over the distinct training event times.

        Higher = earlier event. With competing causes it is the cumulative incidence of `cause`, the first
        by default, at ``horizon_``.

        Raises:
            ConfigError: there is no such cause.
        """
        check_is_fitted(self, "tree_")
        if self._competing:
            return self._risk_of(X, cause)
        self._number(cause)
        leaf = self._leaf(X)
        risk: FloatArray = self.curves_.cumulative_hazard.sum(axis=1)
        return risk[leaf]

    def _incidences(self, X: object, times: FloatArray, after: float = 0.0) -> FloatArray:
        """Steps of the leaves; beyond the last training event they keep their value."""
        leaf = self._leaf(X)
        check_room(len(leaf) * self.incidence_.shape[1], len(times))
        at = steps_up_to(self.event_times_, np.append(0.0, times) + after)
        found = np.pad(self.incidence_, ((0, 0), (0, 0), (1, 0)))[..., at]
        if after:
            found = (found - found[..., :1]) / self.curves_.survival_at(np.array([after]))[:, None]
        return np.asarray(found[..., 1:][leaf])

    def predict_quantile(  # type: ignore[override]  # steps are not extrapolated
        self, X: object, q: float = 0.5, after: npt.ArrayLike | None = None
    ) -> FloatArray:
        """First time at which the survival function is at most 1 - q, shape (n,); the median by default.

        With competing causes it is that of survival without any event.

        It is +inf if the survival function stays above 1 - q. With ``after``, a time at which the rows are
        known to be alive, or one for each row, it is what is left from there.

        Raises:
            ConfigError: ``q`` is not in (0, 1), or the model has time-varying covariates and ``after`` is
                None.
            DataError: the curve of a row is 0 at ``after``.
        """
        leaf, after = self._leaf_and_time(X, after)
        return self.curves_.quantile(q, leaf, after)

    def predict_rmst(self, X: object, tau: float, after: npt.ArrayLike | None = None) -> FloatArray:
        """Restricted mean survival time: the area under S(t | x) from 0 to ``tau`` > 0, shape (n,).

        With competing causes it is the mean time without any event.

        With ``math.inf`` it is the mean, +inf if the curve ends above 0. ``after`` as in
        :meth:`predict_quantile`: the mean of what is left, of which ``tau`` counts as much.

        Raises:
            ConfigError: ``tau`` is not positive, or the model has time-varying covariates and ``after`` is
                None.
            DataError: the curve of a row is 0 at ``after``.
        """
        leaf, after = self._leaf_and_time(X, after)
        return self.curves_.restricted_mean(tau, leaf, after)

    def _leaf_and_time(self, X: object, after: npt.ArrayLike | None) -> tuple[IntArray, FloatArray | None]:
        """Leaf of each row, and times `after` at which rows are alive, (n,) each, checked."""
        self._refuse_unknown_future(after)
        leaf = self._leaf(X)
        if after is None:
            return leaf, None
        times = check_after(after, len(leaf), X)
        check_alive(self.curves_.survival_at(times[:, None], leaf)[:, 0] > 0.0, times)
        return leaf, times

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        """Step functions of the leaves; beyond the last training event they keep their value.

        The cumulative hazard is -log S with ``leaf_curve="proportional_hazards"``; otherwise the Nelson-Aalen
        estimate of the leaf's rows, which is finite where S is 0.
        """
        leaf, curves = self._leaf(X), self.curves_
        check_room(len(leaf), times.shape[-1])
        at = curves.survival_at if kind == "survival" else curves.cumulative_hazard_at
        return at(times)[leaf] if times.ndim == 1 else at(times, leaf)

    # ------------------------------------------------------------------ groups

    def _group_rules(self, n_terms: int | None) -> dict[int, str]:
        names, rules = self.tree_.names, dict[int, str]()
        for number, path in enumerate(self.tree_.paths(), 1):
            if path:
                rules[number] = " and ".join(names[j] if yes else f"not ({names[j]})" for j, yes in path)
        return rules

    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        if self._competing:
            return self._incidences(frame, times)
        return self.curves_.survival_at(times)[self._leaves(frame)]

    def _recalibrated(self, data: SurvivalData, how: Recalibrate) -> Self:
        """See :func:`sstorch.recalibrate`; with competing causes that of each cause-specific hazard."""
        leaf, n_leaves, names = self._leaves(data.frame), self.tree_.n_leaves, self.causes_ or ("",)
        events, expected, reports = self._events(data), self._expected(data, leaf), list[Recalibration]()
        new = self._recalibrated_copy()
        new.outcome_type_ = replace(self.outcome_type_, weighted=data.uneven_weight is not None)
        if how == "baseline":
            check_baseline(data, leaf, n_leaves)
            new._estimate(data, leaf)
            for event, *both in zip(events, expected, new._expected(data, leaf), strict=True):
                reports.append(baseline_report(data, event, (both[0], both[1])))
        else:
            ratios = vars(self).get("hazard_ratios_")
            if ratios is None and how == "slope":
                raise ConfigError(
                    "how='slope' multiplies log hazard ratios, and "
                    f"objective={self._settings.objective!r} has none; use how='intercept' or 'baseline'"
                )
            factors, logs = np.ones((n_leaves, len(names))), np.zeros((n_leaves, len(names)))
            if ratios is not None:
                logs, ratios = np.log(ratios), ratios.copy()
            for k, name in enumerate(names):
                with named(f"cause {name}" if name else ""):
                    factors[:, k], slope, report = leaf_factors(
                        data, events[k], leaf, expected[k], logs[:, k], how
                    )
                if ratios is not None:
                    ratios[:, k] **= slope
                reports.append(report)
            new._scale(factors, ratios, data, leaf)
        new.recalibration_ = dict(zip(names, reports, strict=True)) if self.causes_ else reports[0]
        return new

    # ------------------------------------------------------------------ read and keep

    def _leaf_texts(self) -> list[str]:
        """A line on each group: its number, rows, events and, unless covariates are time-varying, median.

        With competing causes, the events of each cause instead of events and median.
        """
        table, alone = self.leaf_table_, self._competing or self.time_varying_
        medians = [""] * len(table) if alone else [f", {t}" for t in survival_texts(table, self.time_unit_)]
        return [
            f"group {number}: {self._rows_text(row['rows'], number)}, {self._events_text(row)}{median}"
            for number, (_, row), median in zip(table.index, table.iterrows(), medians, strict=True)
        ]

    def _events_text(self, row: pd.Series) -> str:
        """Events of each cause in a row of the table of leaves."""
        counts = [counted(int(row[f"events{ending}"]), "event") for ending in self._endings]
        names = [f" of {name}" for name in self.causes_] or [""]
        return ", ".join(count + name for count, name in zip(counts, names, strict=True))

    def summary(self) -> str:
        """The search and its result, the tree, and a table of the leaves, as text, with a caution.

        Below them the results of ``validate_groups``, of ``group_table`` with resamples, of
        ``stability`` and of :func:`sstorch.recalibrate`, whose rows the table of the leaves then counts.
        """
        check_is_fitted(self, "tree_")
        table, results, total = self.leaf_table_, vars(self), self.leaf_table_.sum()
        is_scaled = any(report.how != "baseline" for report in recalibrations(self).values())
        kind = f"{'recalibrated ' * is_scaled}{self._settings.leaf_curve} curves{self._condition}"
        name, heading, groups = "survival", f"Groups, {kind}", ""
        if self._competing:
            name, heading = "competing risks", "Groups, hazard ratio of each cause"
            table = pd.DataFrame(self.hazard_ratios_, index=table.index, columns=self.causes_)
            incidence = "the recalibrated incidence of the group" if is_scaled else "that of the group"
            unit = f", t in {self.time_unit_}" if self.time_unit_ else ""
            groups = f"F(t) is the incidence of Aalen and Johansen, model F(t) {incidence}{unit}"
            groups += f"{self._condition}\n"
        counts = f"{self._rows_text(total['rows'])}, {self._events_text(total)}{self._of_recalibration}"
        text = self._summary(
            [name, counts, self._settings.objective],
            table,
            lambda value: f"{value:.3f}" if math.isfinite(value) else "-",
            heading,
        )
        parts = [text]
        if "group_table_" in results:
            parts.append(groups + groups_text(self.group_table_))
        parts += [str(results[name]) for name in RESULTS if name in results]
        return "\n\n".join([*parts, *recalibration_texts(self), *self._cautions])

    def _formula(self) -> Formula:
        check_is_fitted(self, "tree_")
        incidence = None
        if self._competing:
            incidence = dict(zip(self.causes_, self.incidence_.swapaxes(0, 1), strict=True))
        return tree_formula(self.tree_, self.rules_, self.curves_, self.schema_, incidence)

    def _deployed(self, medians: bool) -> Deployed:
        table, names = self.leaf_table_, self.causes_ or ("",)
        events = {name: table[f"events{end}"] for name, end in zip(names, self._endings, strict=True)}
        groups = {
            number: Counts(
                int(table["rows"][number]),
                {name: int(count[number]) for name, count in events.items()},
                float(table["median"][number]) if medians and not self._competing else None,
            )
            for number in table.index
        }
        return Deployed(
            f"Optimal survival tree with {self.tree_.n_leaves} leaves",
            Counts(int(table["rows"].sum()), {name: int(count.sum()) for name, count in events.items()}),
            [Field(name, name, None, self.schema_.categories.get(name)) for name in self.schema_.columns],
            self._page_nodes(),
            groups,
            self.time_unit_,
            hasattr(self, "recalibration_"),
            "beyond it curves keep their value",
            "the side 'no' of every split except 'is missing'",
        )


class OptimalSurvivalTree(ExactSurvivalTree):
    """Survival tree with the smallest training loss of all trees of its size with binary splits.

    Columns are converted to binary splits such as "age > 45.5" (`binarize`). An exact search finds the tree
    with the smallest loss on the training rows: optimal for this objective, these rows and these splits.

    Args:
        max_depth: most questions on a path, 0 (a single leaf) to 9; above 5 see :func:`~sstorch.exact.solve`.
        max_nodes: most questions in all, one less than leaves; None is what the depth can hold.
        objective: ``"log_likelihood"``, half the deviance of proportional hazards with one hazard ratio per
            leaf, summed over the rows (SurTree); ``"integrated_brier"``, the Brier score of one curve per
            leaf, with censoring weights and integrated over the observed times (OSST). Competing causes
            support only the log-likelihood: the sum of this loss over causes, with events of other causes
            censored, since the likelihood of cause-specific hazards is a product over causes. The curves of
            the leaves are then Aalen-Johansen estimates.
        leaf_penalty: penalty per leaf, >= 0, in the unit of the objective.
        min_leaf: minimum number of training rows per leaf.
        min_events: minimum number of training events per leaf, of any cause.
        binarize: splits of the columns: a preset of :class:`~sstorch.exact.Binarizer` (``"surtree"``,
            ``"osst"``, ``"all"``, ``"quantiles"``, ``"boosted"``), a Binarizer, or False for columns of 0 and
            1.
        leaf_curve: survival curve of a leaf. ``"kaplan_meier"``: for both objectives.
            ``"proportional_hazards"``: exp(-theta Λ(t)), the curve of the log-likelihood. ``"ipcw"``: the
            step function with the smallest weighted Brier score, also used in the search; the reported curve
            is pooled to be non-increasing, and 0 beyond the follow-up of the leaf.
        time_unit: unit of the times, such as ``"days"``, used in texts and figures.
        search: :class:`~sstorch.Search`, settings of the search: time limit, memory,
            buckets of times, progress; ``search__time_limit`` sets one of them.

    Attributes:
        tree_: :class:`~sstorch.exact.BinaryTree` over the splits; leaf 0 is group 1.
        rules_: the splits, as :class:`~sstorch.exact.Rule`.
        loss_: training loss of the tree: a weighted total over rows, or an integrated Brier score.
        objective_: `loss_` plus `leaf_penalty` times the number of leaves.
        certified_: True if it is proved that no tree within the limits has a smaller `objective_`.
        gap_: upper bound on the difference between `objective_` and the optimum; 0 if certified.
        curves_: survival and cumulative hazard of any event, by group number.
        causes_: names of the K competing causes; empty for one event.
        horizon_: median of the observed event times, at which :meth:`predict` computes incidences of causes.
        incidence_: cumulative incidence of each leaf and cause at `event_times_`, (L, K, T); K = 1 for one
            event.
        hazards_: cumulative hazard of each leaf and cause at `event_times_`, (L, K, T).
        hazard_ratios_: of the log-likelihood, hazard ratio of each leaf and cause, (L, K); a leaf without
            events counts half an event.
        leaf_table_: unweighted numbers of training rows and events per leaf, by cause, and weighted
            estimates: hazard ratios (log-likelihood), median and survival without any event.
        optima_: smallest loss for every depth and number of nodes, from the same search.
        path_: nodes and loss of the best tree for every leaf penalty.
        event_times_: distinct training event times, original units, increasing.
        zero_time_: replacement of a time of zero in scored rows: half the smallest training time.
        group_validation_, stability_, group_table_: the last results of
            :func:`~sstorch.validation.validate_groups`, of :func:`~sstorch.validation.stability`, and of
            :func:`~sstorch.validation.group_table` with resamples; the first is saved. With causes
            `group_table_` is, before that, the table of the training rows.
        recalibration_: report of :func:`sstorch.recalibrate`, one per cause with competing causes;
            `leaf_table_` and `group_table_` then count the rows of the recalibration.
        outcome_type_: type of the training outcome; later outcomes need the same ``entry`` and ``id``.
        time_varying_: True if some training subjects have several rows. One row then does not determine
            survival from time zero; predictions need a path or ``after``.
        schema_: columns and categories of the training rows.
        feature_names_in_: raw feature names.
        n_features_in_: number of raw features.
        n_samples_fit_: number of training rows, without rows of weight 0 and after merging of equal rows.

    References:
        Huisman, van der Linden and Demirović (2024), Optimal survival trees: a dynamic programming approach,
        AAAI 38. Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS. Aalen and
        Johansen (1978), Scandinavian Journal of Statistics 5, 141-150.

    >>> from sstorch import load_dataset
    >>> from sstorch.reading import export_text
    >>> data = load_dataset("gbsg2")
    >>> tree = OptimalSurvivalTree(max_depth=2).fit(data.frame, (data.time, data.event))
    >>> print(export_text(tree))
    if pnodes > 3:
    ...
    >>> tree.certified_, tree.predict_survival_function(data.frame[:2], times=[365.0, 730.0]).shape
    (True, (2, 2))
    """

    def __init__(
        self,
        max_depth: int = 3,
        max_nodes: int | None = None,
        objective: Objective = "log_likelihood",
        leaf_penalty: float = 0.0,
        min_leaf: int = 1,
        binarize: Preset | bool | Binarizer = "surtree",
        leaf_curve: LeafCurveKind = "kaplan_meier",
        min_events: int = 0,
        time_unit: str | None = None,
        search: Search = SEARCH,
    ) -> None:
        super().__init__(max_depth, max_nodes, leaf_penalty, min_leaf, binarize, search)
        self.time_unit = time_unit
        self.objective = objective
        self.leaf_curve = leaf_curve
        self.min_events = min_events

    def fit(
        self, X: object, y: object = None, sample_weight: object = None, *, reference: object = None
    ) -> Self:
        """Search for the tree.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array
                (n, p); with ``binarize=False`` columns of 0 and 1.
            y: :class:`~sstorch.Surv`, or a right-censored outcome as a (time, event) tuple, a structured
                array or a DataFrame. ``objective="log_likelihood"`` also supports left truncation and
                start-stop rows (``entry``, ``id``), see :class:`~sstorch.exact.LogLikelihood`; curves of
                leaves then use the rows at risk. A subject with several rows can change leaves; consecutive
                rows with equal covariates are merged first. A Surv with ``causes`` fits a tree for competing
                causes.
            sample_weight: (n,), >= 0. Thresholds, objective, curves and hazard ratios are weighted. Integer
                weights and repeated rows give the same tree. The scale of the weights matters only for
                ``leaf_penalty`` with the log-likelihood, a weighted total. ``min_leaf``, ``min_events`` and
                the counts of tables are of rows of positive weight, whatever they weigh.
            reference: fitted survival model of these columns. Its loss in each row is the assumed least loss
                of a tree there, which shortens searches of more than about 20 seconds, as at depth 6. `gap_`
                uses proved bounds alone. See :func:`~sstorch.exact.reference_costs`.

        Raises:
            DataError: the data are invalid; the message names column, rows and remedy.
            ConfigError: a parameter has an invalid value, the objective does not support left truncation, or
                there are too many splits for the depth (the message estimates memory and time).
        """
        return self._fit_data(training_rows(X, y, sample_weight), reference)

    def _fit_data(self, data: SurvivalData, reference: object = None) -> Self:
        """:meth:`fit` to rows of positive weight."""
        return self._set_final(self._checked()._searched(data, reference))
