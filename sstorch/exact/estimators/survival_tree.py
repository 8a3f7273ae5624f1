"""The common part of exact survival trees: search, leaves, predictions, groups, texts."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_choice, counted
from sstorch.data import SurvivalData
from sstorch.data.survival_data import fingerprint
from sstorch.data.time_unit import CONSTANT_COVARIATES, check_time_unit, round_horizons, rows_of_subjects
from sstorch.deploy.calculator import Field
from sstorch.deploy.exports import Counts, Deployed
from sstorch.deploy.expression import (
    TIME,
    Expression,
    Formula,
    as_expression,
    is_category,
    known,
    let,
    number,
    pick,
    rank,
    where,
)
from sstorch.exact.binarize import Rule
from sstorch.exact.estimators.base import ExactTree, Questions
from sstorch.exact.leaf_curves import LeafCurves, leaf_curves
from sstorch.exact.rows import weighted_rows
from sstorch.exact.solution import Solution
from sstorch.exact.survival_tasks import IntegratedBrier, LogLikelihood, reference_costs
from sstorch.exceptions import ConfigError, DataError, named, warn
from sstorch.fitted.estimator import SurvivalEstimator
from sstorch.groups.recalibration import (
    RESULTS,
    Partition,
    PartitionOf,
    Recalibrate,
    Recalibration,
    check_events,
    recalibration_texts,
    recalibrations,
)
from sstorch.groups.table import (
    CHOSEN_RULES,
    WEIGHTED,
    groups_text,
    groups_without_events,
    survival_texts,
    table_of,
)
from sstorch.metrics.outcome import Observed
from sstorch.metrics.weights import check_weighting, covariance_of
from sstorch.reading.nodes import steps_from_entry

Objective = Literal["log_likelihood", "integrated_brier"]


def training_rows(X: object, y: object, sample_weight: object) -> SurvivalData:
    """The rows of positive weight, with follow-up, of a fit. Raises DataError: the data are invalid."""
    data = SurvivalData(X, y, sample_weight=sample_weight)
    data.warn_of_few_events()
    data = data.followed()
    if text := steps_from_entry(data):
        warn(text)
    return data


def observed(data: SurvivalData) -> Observed:
    """The outcomes of rows, with whole weights."""
    return weighted_rows(data.y, data.sample_weight)


class TreeSearch(NamedTuple):
    """A finished search: checked parameters, rows and their outcomes, and the trees of all budgets."""

    settings: Any
    data: SurvivalData
    rows: Observed
    questions: Questions
    solution: Solution


class SurvivalTree(ExactTree, SurvivalEstimator):
    """Base class of exact survival trees, of one event or of competing causes."""

    _format = "sstorch.optimal_survival_tree"
    # of a search over sizes, see :meth:`save`
    _not_saved = ("stability_", "best_depth_", "best_nodes_", "best_score_", "cv_results_", "folds_")
    _has_density = False

    training_rows_: str  # fingerprint of the training rows
    _start_text: str  # that curves before the first entry are not observed; empty if nothing is lost
    _subjects: list[int]  # of all rows that the tables count and of each group; empty if each has one row
    leaf_table_: pd.DataFrame
    group_table_: pd.DataFrame
    curves_: LeafCurves
    hazard_ratios_: FloatArray
    recalibration_: Recalibration | dict[str, Recalibration]
    objective: Objective
    min_events: int
    time_unit: str | None

    @abstractmethod
    def _fit_data(self, data: SurvivalData) -> Self:
        """Search for the tree of rows of positive weight."""

    def _check(self) -> None:
        check_choice(self.objective, "objective", get_args(Objective))
        super()._check()
        self.time_unit = check_time_unit(self.time_unit)

    def _check_outcome(self, rows: Observed) -> None:
        """Require an objective that supports left truncation and competing causes, where rows have these."""
        if self.objective == "log_likelihood":
            return
        name = "left truncation" if rows.entry is not None else "competing causes"
        if rows.entry is not None or rows.n_causes > 1:
            raise ConfigError(
                f"objective={self.objective!r} does not support {name}; use objective='log_likelihood'"
            )

    def _searched(self, data: SurvivalData, reference: object = None) -> TreeSearch:
        """Binarize and solve with checked parameters, from these rows and the reference model alone."""
        data, settings = data.joined(), copy.copy(self)
        rows, settings.time_unit = observed(data), self.time_unit or data.time_unit
        self._check_outcome(rows)
        questions = self._questions(data.frame, data.sample_weight)
        task = self._task(data, rows.n_causes)
        guess = None if reference is None else reference_costs(task, reference, data.frame)
        solution = self._solve(questions, task, min_events=self.min_events, guess=guess)
        return TreeSearch(settings, data, rows, questions, solution)

    def _task(self, data: SurvivalData, n_causes: int) -> LogLikelihood | IntegratedBrier:
        """The loss of rows."""
        if self.objective == "log_likelihood":
            return LogLikelihood(
                data.time, data.cause, n_causes=n_causes, entry=data.entry, sample_weight=data.sample_weight
            )
        n_buckets = self.search.n_buckets
        return IntegratedBrier(data.time, data.event, n_buckets=n_buckets, sample_weight=data.sample_weight)

    def _set_search(self, search: TreeSearch) -> Self:
        """Take over the tree of a search, and the curves of its leaves; warns of groups without events."""
        settings, data, rows, questions, solution = search
        leaf = self._set_solution(settings, questions, solution)
        # Leaves are numbered by the survival of their training rows.
        order = leaf_curves(leaf, self.tree_.n_leaves, rows).order
        self.tree_ = replace(self.tree_, order=order)
        self._set_outcome(data)
        self.training_rows_, self._start_text = fingerprint(data), steps_from_entry(data)
        self._forget_results()
        self._estimate(data, order[leaf])
        for text in groups_without_events(order[leaf] + 1, data):
            warn(text)
        return self

    def _forget_results(self) -> None:
        """Drop results about another tree."""
        for name in (*RESULTS, "leaf_table_", "group_table_", "recalibration_", "hazard_ratios_"):
            self.__dict__.pop(name, None)

    # ------------------------------------------------------------------ leaves

    def _estimate(self, data: SurvivalData, leaf: IntArray) -> None:
        """Estimate what the leaves hold from rows with a leaf each, (n,)."""
        rows, n_leaves, settings, ratios = observed(data), self.tree_.n_leaves, self._settings, None
        settings._check_outcome(rows)
        if settings.objective == "log_likelihood":
            task = settings._task(data, rows.n_causes)
            ratios = np.asarray(task.decisions(leaf, n_leaves)).reshape(n_leaves, -1)
        self._set_leaves(leaf_curves(leaf, n_leaves, rows), ratios, data, leaf)

    def _set_leaves(
        self, curves: LeafCurves, ratios: FloatArray | None, data: SurvivalData, leaf: IntArray
    ) -> None:
        """Set curves and hazard ratios (L, K) of the leaves, and the tables of the rows of `data`."""
        self.curves_, self.event_times_ = replace(curves, competing=bool(self.causes_)), curves.times
        n_leaves = self.tree_.n_leaves
        inside = [leaf >= 0, *(leaf == number for number in range(n_leaves))]
        subject = data.subject if data.time_varying else None
        self._subjects = [] if subject is None else [np.unique(subject[each]).size for each in inside]
        index = pd.RangeIndex(1, n_leaves + 1, name="group")
        table = pd.DataFrame({"rows": np.bincount(leaf, minlength=n_leaves)}, index=index)
        for ending, event in zip(self._endings, self._events(data).T, strict=True):
            table[f"events{ending}"] = np.bincount(leaf[event], minlength=n_leaves)
        if ratios is not None:
            self.hazard_ratios_ = ratios
            table[[f"hazard_ratio{ending}" for ending in self._endings]] = ratios
        table["median"] = curves.quantile(None, 0.5)
        times = round_horizons(self.event_times_, self._settings.time_unit)
        for time, column in zip(times, curves.survival_at(times).T, strict=True):
            table[f"S({time:g})"] = column
        self.leaf_table_ = table
        if self.causes_:
            self.group_table_ = table_of(self, data)

    @property
    def _endings(self) -> list[str]:
        """What names of columns of each cause end with; nothing for one event."""
        return [f" {name}" for name in self.causes_] or [""]

    def _events(self, data: SurvivalData) -> BoolArray:
        """Which rows have an event of each cause, (n, K)."""
        return np.asarray(data.cause[:, None] == np.arange(1, len(self._endings) + 1))

    @property
    def time_unit_(self) -> str | None:
        """Unit of the times; None if not given."""
        check_is_fitted(self, "tree_")
        return self._settings.time_unit

    # ------------------------------------------------------------------ predict

    @property
    def _model(self) -> LeafCurves:  # type: ignore[override]  # steps are predicted by numbers of leaves
        check_is_fitted(self, "tree_")
        return self.curves_

    def _encode(self, X: object, warn: bool = False) -> IntArray:
        return self._leaf(X)

    def _log_survival(self, X: object, times: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(self._curves("survival", X, times))

    # ------------------------------------------------------------------ groups

    @property
    def _can_divide(self) -> bool:
        return self.max_depth > 0 and self.max_nodes != 0

    @property
    def _seed(self) -> int:
        return 0

    def apply(self, X: object) -> IntArray:
        """Return the group of each row, 1 .. L, (n,), by prognosis: 1 has the longest survival."""
        return super().apply(X) + 1

    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        predict = self.curves_.incidence if self.causes_ else self.curves_.curves
        return predict(self._leaves(frame), times)

    def _group_rules(self, n_terms: int | None) -> dict[int, str]:
        names, rules = self.tree_.names, dict[int, str]()
        for group, path in enumerate(self.tree_.paths(), 1):
            if path:
                rules[group] = " and ".join(names[j] if yes else f"not ({names[j]})" for j, yes in path)
        return rules

    def _partition(self, frame: pd.DataFrame) -> Partition:
        used = self.tree_.feature[~self.tree_.is_leaf].tolist()
        return Partition(self._leaves(frame) + 1, frozenset(self.rules_[j].column for j in used))

    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[PartitionOf]:
        return [clone(self)._fit_data(rows)._partition for rows in splits]

    def _recalibrated(self, data: SurvivalData, how: Recalibrate) -> Self:
        """See :func:`sstorch.recalibrate`; with competing causes that of each cause-specific hazard."""
        if how == "slope":
            raise ConfigError("how must be 'intercept' or 'baseline' for an exact tree, got 'slope'")
        leaf, names, reports = self._leaves(data.frame), self.causes_ or ("",), list[Recalibration]()
        events, before = self._events(data).T, self.curves_.exposure(leaf, data.time, data.entry).T
        new = copy.copy(self)
        new._forget_results()  # they are of other rows
        new.outcome_type_ = replace(self.outcome_type_, weighted=data.uneven_weight is not None)
        if how == "baseline":
            check_baseline(data, leaf, self.tree_.n_leaves)
            new._estimate(data, leaf)
            after = new.curves_.exposure(leaf, data.time, data.entry).T
            reports += [baseline_report(data, *each) for each in zip(events, before, after, strict=True)]
        else:
            for name, event, expected in zip(names, events, before, strict=True):
                with named(f"cause {name}" if name else ""):
                    reports.append(intercept_report(data, event, expected))
            curves = self.curves_.scaled(np.exp([each.intercept or 0.0 for each in reports]))
            new._set_leaves(curves, vars(self).get("hazard_ratios_"), data, leaf)
        new.recalibration_ = dict(zip(names, reports, strict=True)) if self.causes_ else reports[0]
        return new

    # ------------------------------------------------------------------ texts and exports

    def _leaf_texts(self) -> list[str]:
        """Number, rows, events of each cause and, for one event and constant covariates, median of groups."""
        table, alone = self.leaf_table_, bool(self.causes_) or self.time_varying_
        medians = [""] * len(table) if alone else [f", {t}" for t in survival_texts(table, self.time_unit_)]
        return [
            f"group {number}: {self._rows_text(row['rows'], number)}, {self._events_text(row)}{median}"
            for number, (_, row), median in zip(table.index, table.iterrows(), medians, strict=True)
        ]

    def _rows_text(self, rows: float, group: int = 0) -> str:
        """Rows of a group, 0 for all, and their subjects where these have several."""
        return rows_of_subjects(rows, self._subjects[group] if self._subjects else None)

    def _events_text(self, row: pd.Series) -> str:
        """Events of each cause in a row of the table of leaves."""
        counts = [counted(int(row[f"events{ending}"]), "event") for ending in self._endings]
        names = [f" of {name}" for name in self.causes_] or [""]
        return ", ".join(count + name for count, name in zip(counts, names, strict=True))

    def summary(self) -> str:
        """The search and its result, the tree, a table of the leaves, and the last results, with cautions."""
        check_is_fitted(self, "tree_")
        table, results, total = self.leaf_table_, vars(self), self.leaf_table_.sum()
        is_scaled = any(each.how != "baseline" for each in recalibrations(self).values())
        condition = f", from time zero {CONSTANT_COVARIATES}" if self.time_varying_ else ""
        name, groups = "survival", ""
        heading = f"Groups, {'recalibrated ' * is_scaled}Kaplan-Meier curves{condition}"
        if self.causes_:
            name, heading = "competing risks", "Groups, hazard ratio of each cause"
            table = pd.DataFrame(self.hazard_ratios_, index=table.index, columns=self.causes_)
            incidence = "the recalibrated incidence of the group" if is_scaled else "that of the group"
            unit = f", t in {self.time_unit_}" if self.time_unit_ else ""
            groups = f"F(t) is the incidence of Aalen and Johansen, model F(t) {incidence}{unit}{condition}\n"
        is_recalibrated = hasattr(self, "recalibration_")
        counts = f"{self._rows_text(total['rows'])}, {self._events_text(total)}"
        counts += " of the recalibration" * is_recalibrated
        parts = [
            self._summary(
                [name, counts, self._settings.objective],
                table,
                lambda value: f"{value:.3f}" if math.isfinite(value) else "-",
                heading,
            )
        ]
        if "group_table_" in results:
            parts.append(groups + groups_text(self.group_table_))
        parts += [str(results[name]) for name in RESULTS if name in results] + recalibration_texts(self)
        if self.tree_.n_leaves > 1 and not is_recalibrated:
            parts.append(f"Caution: {CHOSEN_RULES}")
        if self._start_text:
            parts.append(f"Caution: {self._start_text}.")
        return "\n\n".join([*parts, *([WEIGHTED] if self.outcome_type_.weighted else [])])

    def _formula(self) -> Formula:
        """The group, S(t) and the incidences of a patient by a survival tree; a missing value answers no."""
        check_is_fitted(self, "tree_")
        tree, rules, curves = self.tree_, self.rules_, self.curves_

        def below(node: int) -> Expression:
            if tree.feature[node] < 0:
                return as_expression(int(tree.leaf_number[node]))
            rule = rules[int(tree.feature[node])]
            return where(_answer(rule), below(int(tree.present[node])), below(int(tree.absent[node])))

        leaf = let("leaf", below(0))
        passed = let("events_passed", rank(TIME, curves.times.tolist()))
        place = leaf * (len(curves.times) + 1.0) + passed

        def step(start: float, steps: FloatArray) -> Expression:
            """From one table: of each leaf its start, then its values from each event time on."""
            return pick(place, [value for curve in steps.tolist() for value in (start, *curve)])

        survival = let("survival", step(1.0, curves.survival))
        incidences: Mapping[str, Expression] = {
            name: let(f"incidence_{name}", step(0.0, curves.incidences[:, k]))
            for k, name in enumerate(self.causes_)
        }
        columns = {name: self.schema_.categories.get(name) for name in self.schema_.columns}
        gates = {k: _answer(rules[int(j)]) for k, j in enumerate(tree.feature) if j >= 0}
        return Formula(columns, let("group_number", leaf + 1.0), survival, incidences, gates=gates)

    def _deployed(self, medians: bool) -> Deployed:
        table, names = self.leaf_table_, self.causes_ or ("",)

        def counts(row: pd.Series, median: float | None) -> Counts:
            events = {name: int(row[f"events{end}"]) for name, end in zip(names, self._endings, strict=True)}
            return Counts(int(row["rows"]), events, median)

        shown = table["median"] if medians and not self.causes_ else [None] * len(table)
        rows = [counts(row, median) for (_, row), median in zip(table.iterrows(), shown, strict=True)]
        return Deployed(
            f"Optimal survival tree with {self.tree_.n_leaves} leaves",
            counts(table.sum(), None),
            [Field(name, name, None, self.schema_.categories.get(name)) for name in self.schema_.columns],
            self._page_nodes(),
            dict(zip(table.index, rows, strict=True)),
            self.time_unit_,
            hasattr(self, "recalibration_"),
            "beyond it curves keep their value",
            "the side 'no' of every split except 'is missing'",
        )


def intercept_report(data: SurvivalData, event: BoolArray, expected: FloatArray) -> Recalibration:
    """Log of observed over `expected` events (n,), with the sandwich of subjects. DataError: none of them."""
    weighting = check_weighting(data.sample_weight, len(data))
    n_events = check_events(event, weighting, "intercept", 1)
    weight = np.ones(len(data)) if weighting.values is None else weighting.values
    observed, total = float(weight @ event), float(weight @ expected)
    if total <= 0:
        raise DataError("the tree expects no event of these rows; use how='baseline'")
    ratio = observed / total
    residuals = (weight * (event - ratio * expected))[:, None]
    error = math.sqrt(float(covariance_of(residuals, data.subject)[0, 0])) / observed
    return Recalibration(
        "intercept", len(data), n_events, math.log(ratio), 1.0, {}, error, None, (ratio, 1.0), None
    )


def baseline_report(
    data: SurvivalData, event: BoolArray, before: FloatArray, after: FloatArray
) -> Recalibration:
    """Report of curves estimated from the rows; expected cumulative hazards (n,) `before` and `after`."""
    weight = data.sample_weight
    first, last = (float(weight @ event / (weight @ h)) if weight @ h > 0 else None for h in (before, after))
    n_events = int(event.sum())
    return Recalibration("baseline", len(data), n_events, None, None, {}, None, None, (first, last), None)


def check_baseline(data: SurvivalData, leaf: IntArray, n_leaves: int) -> None:
    """DataError: a leaf has no rows, or there are fewer events than leaves; DataWarning: few events."""
    empty = np.flatnonzero(np.bincount(leaf, minlength=n_leaves) == 0)
    if len(empty):
        raise DataError(
            f"how='baseline' estimates the curve of each group from its rows, and group {empty[0] + 1} has "
            "none; give more rows, or take how='intercept'"
        )
    check_events(data.event, check_weighting(data.sample_weight, len(data)), "baseline", n_leaves)


def _answer(rule: Rule) -> Expression:
    """Whether a question is answered with yes."""
    if rule.kind == "missing":
        return ~known(rule.column)
    if rule.kind in ("above", "between"):
        value = number(rule.column, math.nan)
        parts = [value > rule.low] if rule.low > -math.inf else []
        parts += [value <= rule.high] if rule.high < math.inf else []
        return parts[0] if len(parts) == 1 else parts[0] & parts[1]
    among = is_category(rule.column, rule.values[0])
    for label in rule.values[1:]:
        among = among | is_category(rule.column, label)
    return among if rule.kind == "is" else known(rule.column) & ~among
