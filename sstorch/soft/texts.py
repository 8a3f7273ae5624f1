"""Texts and tables of a fitted soft tree: what an estimator reads of its training rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from sstorch._types import FloatArray
from sstorch.checks import sentence_case
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.surv import OutcomeType
from sstorch.data.time_unit import CONSTANT_COVARIATES
from sstorch.deploy.calculator import PageNode
from sstorch.deploy.exports import Deployed
from sstorch.deploy.expression import Formula
from sstorch.fitted.program import export_program
from sstorch.fitted.tree import FittedTree
from sstorch.groups.recalibration import Partition, Recalibration, recalibration_texts
from sstorch.groups.table import CHOSEN_RULES, WEIGHTED, groups_text
from sstorch.groups.validation import GroupValidation, Stability
from sstorch.inference.coefficients import terms
from sstorch.inference.covariance import FitCovariance, no_covariance
from sstorch.nn import SoftTree
from sstorch.reading.nodes import Reading, group_of
from sstorch.reading.scores import Score
from sstorch.reading.texts import (
    as_text,
    contrast_lines,
    describe_tree,
    effect_lines,
    events_text,
    group_sentences,
    leaf_texts,
    rows_text,
    tree_html,
)
from sstorch.soft.formula import deployed, page_nodes, tree_formula
from sstorch.soft.group_choice import REGRESSION, GroupChoice


class TreeTexts:
    """Texts, tables and exports of a fitted soft estimator."""

    _title: ClassVar[str]

    tree_: FittedTree
    choice_: GroupChoice | None
    event_times_: FloatArray
    outcome_type_: OutcomeType
    covariance_: FitCovariance
    recalibration_: Recalibration | Mapping[str, Recalibration]
    group_table_: pd.DataFrame  # the last result of :func:`~sstorch.validation.group_table` with resamples
    group_validation_: GroupValidation  # of :func:`~sstorch.validation.validate_groups`; saved
    stability_: Stability  # of :func:`~sstorch.validation.stability`; not saved
    _training_rows: SurvivalData
    _cleaned: Callable[[object], pd.DataFrame]
    _scored: Callable[..., SurvivalData]

    def _number_groups(self, x: RowFeatures) -> None:
        data = self._training_rows
        self.tree_ = self.tree_.numbered(x, data.sample_weight, float(data.nominal_time.max()))

    @property
    def _tree(self) -> FittedTree:
        """The trained tree, its groups numbered; NotFittedError if there is none yet."""
        check_is_fitted(self, "tree_")
        if self.tree_.groups is None:
            self._number_groups(self.tree_.encode(self._training_rows.frame))
        return self.tree_

    @property
    def module_(self) -> SoftTree:
        """The trained :class:`~sstorch.nn.SoftTree`, without batch dimension; of the first cause."""
        return self._tree.module

    @property
    def preprocessor_(self) -> Preprocessor:
        """Fitted on the training rows."""
        return self._tree.preprocessor

    @cached_property
    def _reading(self) -> Reading:
        """Tables and rules of the training rows, which are released: of most trees they are never read."""
        tree, data = self._tree, self._training_rows
        found = Reading.of(tree, tree.encode(data.frame), data, self.event_times_)
        del self._training_rows
        return found

    def _read_later(self, data: SurvivalData) -> None:
        """Hold the training rows until what is read of them is looked at."""
        self.__dict__.pop("_reading", None)
        self._training_rows = data

    @property
    def late_fit_(self) -> tuple[str, ...]:
        """Groups with a mean curve outside the 95 % Kaplan-Meier band late in follow-up, a sentence each."""
        return self._reading.late_fit

    @property
    def training_rows_(self) -> str:
        """Fingerprint of the training rows, for :func:`~sstorch.validate`."""
        return self._reading.training_rows

    def _group_rules(self, n_terms: int | None) -> dict[int, str]:
        return self._reading.group_rules(self._tree, n_terms)

    def _export_text(self, n_terms: int | None) -> str:
        return as_text(self._tree, self._reading, n_terms)

    def _leaf_texts(self) -> list[str]:
        texts = {
            group_of(self._tree, leaf): text for leaf, text in leaf_texts(self._tree, self._reading).items()
        }
        return [texts.get(group, f"group {group}: no rows") for group in sorted(self._tree.group_numbers)]

    def _formula(self) -> Formula:
        return tree_formula(self._tree)

    def _deployed(self, medians: bool) -> Deployed:
        facts = deployed(self._tree, self._reading, medians)
        return replace(facts, recalibrated="recalibration_" in vars(self))

    def _page_nodes(self) -> list[PageNode]:
        return page_nodes(self._tree, self._reading)

    def _write_program(self, path: Path, after: float | None) -> None:
        export_program(self._tree, path, after)

    def _fitted_html(self) -> str:
        return tree_html(self._tree, self._reading, self._title) if hasattr(self, "event_times_") else ""

    def describe(self, n_terms: int | None = 4) -> str:
        """Describe each group in one sentence: rule, rows, events, survival at two times and median.

        Estimates of the training rows have 95 % confidence limits: Kaplan-Meier; Aalen-Johansen per cause
        with competing causes; none for interval-censored times. Groups are listed by prognosis, with the
        numbers of ``apply``. If the evidence chose groups, a last sentence states where effects differ.

        Args:
            n_terms: maximum number of terms of a rule, by size of the effect; None for all.
        """
        return "\n".join(self._sentences(n_terms))

    def _sentences(self, n_terms: int | None = 4) -> list[str]:
        """Sentences of :meth:`describe`, in which names of columns may have several lines."""
        tree, reading, rules = self._tree, self._reading, self._group_rules(n_terms)
        lines = group_sentences(reading.groups, rules, reading.root, tree.time_unit, tree.time_varying)
        lines += [f"Survival is from time zero {CONSTANT_COVARIATES}."] if tree.time_varying else []
        lines += [WEIGHTED] if self.outcome_type_.weighted else []
        if self.choice_ is not None and self.choice_.chosen != REGRESSION:
            lines.append(f"{sentence_case(str(self.choice_))}.")
        return lines

    def summary(self, details: bool = False) -> str:
        """Summarise the model as text: groups with survival, effects within groups, and cautions.

        It includes, if computed, the results of ``validate_groups``, ``group_table`` with resamples and
        ``stability``.

        Args:
            details: add the tree of rules, the table of the groups with the parameters of their hazards,
                the evidence for them, and the estimated penalties with effective degrees of freedom.
        """
        tree, effects, choice, results = self._tree, self._effects_text(), self.choice_, vars(self)
        root, cautions = self._reading.root, [*self.late_fit_]
        parts = [f"{self._title}: {rows_text(root)}, {events_text(tree, root)}\n{self.describe()}", effects]
        if effects and (reason := no_covariance(self)):
            cautions.append(f"Effects have no confidence intervals: {reason}")
        elif effects and self.outcome_type_.weighted and self.covariance_.kind != "sandwich":
            cautions.append(
                "Intervals of effects take weights as counts, scaled to the effective sample size; without "
                "penalties, inference.with_sandwich(model, X, y, sample_weight) is robust"
            )
        if choice is not None and choice.chosen == REGRESSION and not np.isnan(choice.gain) and not details:
            cautions.append(sentence_case(choice.finding))
        cautions += [CHOSEN_RULES] if len(self._reading.leaves) > 1 else []
        parts.append("\n".join(["Cautions", *(f"* {each}" for each in cautions)]) if cautions else "")
        if details:
            parts.append(describe_tree(tree, self._reading, not effects))
            parts.append(choice.summary() if choice is not None else "")
        parts.append(str(results.get("group_validation_", "")))
        parts.append(groups_text(self.group_table_) if "group_table_" in results else "")
        parts.append(str(results.get("stability_", "")))
        parts += recalibration_texts(self)
        return "\n\n".join(filter(None, parts))

    def _effects_text(self) -> str:
        """Contrasts with confidence intervals, or slopes without where there is no covariance."""
        if not no_covariance(self):
            return "\n".join(contrast_lines(self._tree, self._reading, terms(self)))
        return "\n".join(effect_lines(self._tree, self._reading)).strip()


def partition(tree: FittedTree, frame: pd.DataFrame) -> Partition:
    """Groups that a tree makes of rows that were read, and the columns of its gates."""
    scores = [Score.of_node(tree, node) for node in tree.module.topology.branches]
    used = [
        name
        for score in scores
        for term, size in zip(score.terms, score.weight * score.scale, strict=True)
        for name in term.columns
        if size
    ]
    return Partition(tree.apply(tree.encode(frame)), frozenset(used))
