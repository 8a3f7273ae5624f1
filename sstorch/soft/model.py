"""A fitted soft tree as a survival model: predictions, texts, groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sstorch._types import FloatArray, IntArray
from sstorch.checks import sentence_case, wording
from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.subjects import CONSTANT_COVARIATES
from sstorch.data.time_unit import round_horizons
from sstorch.deploy.calculator import PageNode
from sstorch.deploy.exports import Deployed
from sstorch.deploy.expression import Formula
from sstorch.fitted import FittedTree, Prediction
from sstorch.fitted.estimator import DistributionEstimator
from sstorch.fitted.program import export_program
from sstorch.groups.recalibration import Recalibration, recalibration_texts
from sstorch.groups.stability import Stability
from sstorch.groups.table import CHOSEN_RULES, WEIGHTED, groups_text
from sstorch.groups.tree import Partition
from sstorch.groups.validation import GroupValidation
from sstorch.inference.coefficients import terms
from sstorch.inference.covariance import FitCovariance, no_covariance
from sstorch.nn import SoftTree
from sstorch.reading import Explanation
from sstorch.reading.effects import explain_row
from sstorch.reading.nodes import Reading
from sstorch.reading.texts import (
    as_graphviz,
    as_text,
    contrast_lines,
    describe_tree,
    effect_lines,
    events_text,
    group_sentences,
    rows_text,
    tree_html,
)
from sstorch.soft.formula import deployed, page_nodes, tree_formula
from sstorch.soft.group_choice import REGRESSION, GroupChoice
from sstorch.soft.trained_batch import partition


class SoftModel(DistributionEstimator):
    """Predictions and texts of a fitted soft estimator; attributes are listed in :class:`SoftEstimator`."""

    _title: ClassVar[str]

    tree_: FittedTree
    choice_: GroupChoice | None
    recalibration_: Recalibration | Mapping[str, Recalibration]
    time_unit_: str | None
    covariance_: FitCovariance
    group_table_: pd.DataFrame  # the last result of :func:`~sstorch.validation.group_table` with resamples
    group_validation_: GroupValidation  # of :func:`~sstorch.validation.validate_groups`; saved
    stability_: Stability  # of :func:`~sstorch.validation.stability`; not saved
    _training_rows: SurvivalData

    @property
    def _prediction(self) -> Prediction:
        return "hbp"

    def _number_groups(self, x: RowFeatures) -> None:
        data = self._training_rows
        self.tree_ = self.tree_.numbered(x, data.sample_weight, float(data.nominal_time.max()))

    @property
    def _tree(self) -> FittedTree:
        """The trained tree, its groups numbered.

        Raises:
            sklearn.exceptions.NotFittedError: there is none yet.
        """
        check_is_fitted(self, "tree_")
        if self.tree_.groups is None:
            self._number_groups(self.tree_.encode(self._training_rows.frame))
        return self.tree_

    @property
    def _model(self) -> FittedTree:
        return self._tree

    @property
    def module_(self) -> SoftTree:
        """The trained :class:`~sstorch.nn.SoftTree`, without batch dimension; of the first cause."""
        return self._tree.module

    @property
    def preprocessor_(self) -> Preprocessor:
        """Fitted on the training rows."""
        return self._tree.preprocessor

    # ------------------------------------------------------------------ predict

    def _fitted_html(self) -> str:
        if not hasattr(self, "event_times_"):
            return ""
        return tree_html(self._tree, self._reading, self._title)

    def _formula(self) -> Formula:
        return tree_formula(self._tree)

    def _deployed(self, medians: bool) -> Deployed:
        facts = deployed(self._tree, self._reading, medians)
        return replace(facts, recalibrated="recalibration_" in vars(self))

    def _page_nodes(self) -> list[PageNode]:
        return page_nodes(self._tree, self._reading)

    @override
    def _write_program(self, path: Path, after: float | None) -> None:
        export_program(self._tree, path, self.event_times_, after)

    def predict_leaf_proba(self, X: object) -> FloatArray:
        """Predict the probability of each group, shape (n, L), ordered by group number; rows sum to one."""
        return self._tree.leaf_probability(self._encode(X, warn=True))

    def apply(self, X: object) -> IntArray:
        """Return the group of each row, 1 .. L by prognosis (1 = longest survival), shape (n,)."""
        return self._tree.apply(self._encode(X, warn=True))

    # ------------------------------------------------------------------ trust

    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        tree = self._tree
        x = tree.encode(frame)
        return tree.incidence(x, times) if tree.competing else tree.curves(x, times)

    def _partition(self, frame: pd.DataFrame) -> Partition:
        return partition(self._tree, frame)

    @property
    def _schema(self) -> Schema:
        return self._tree.preprocessor.schema

    @override
    def _encode(self, X: object, warn: bool = False) -> RowFeatures:
        tree, frame = self._tree, self._cleaned(X)
        with wording(rows=X):
            if warn:
                tree.preprocessor.warn_of_far_values(frame)
            return tree.encode(frame)

    # ------------------------------------------------------------------ read

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
    def node_table_(self) -> pd.DataFrame:
        """Training rows, events and mean predicted survival by node, by heap number."""
        return self._reading.nodes

    @property
    def late_fit_(self) -> tuple[str, ...]:
        """Groups whose mean curve leaves the band of Kaplan-Meier late in follow-up, a sentence each."""
        return self._reading.late_fit

    @property
    def training_rows_(self) -> str:
        """Fingerprint of the training rows."""
        return self._reading.training_rows

    def _group_rules(self, n_terms: int | None) -> dict[int, str]:
        return self._reading.group_rules(self._tree, n_terms)

    def _export_text(self, n_terms: int | None) -> str:
        return as_text(self._tree, self._reading, n_terms)

    def _export_graphviz(self, n_terms: int | None) -> str:
        return as_graphviz(self._tree, self._reading, n_terms)

    def describe(self, n_terms: int | None = 4) -> str:
        """Describe each group in one sentence: rule, rows, events, survival at two times and median.

        Estimates are from the training rows, with 95 % confidence limits: Kaplan-Meier; Aalen-Johansen per
        cause with competing causes; none for interval-censored times. There is no median with time-varying
        covariates. Groups with training rows are listed by prognosis, with the numbers of
        ``apply``. If the evidence chose groups, a last sentence states in which effects they differ.

        Args:
            n_terms: maximum number of terms of a rule, by size of the effect; None for all.
        """
        return "\n".join(self._sentences(n_terms))

    def _sentences(self, n_terms: int | None = 4) -> list[str]:
        """Sentences of :meth:`describe`, in which names of columns may have several lines."""
        tree, reading, rules = self._tree, self._reading, self._group_rules(n_terms)
        lines = group_sentences(reading.groups, rules, reading.root, tree.time_unit, tree.time_varying)
        if self._tree.time_varying:
            lines.append(f"Survival is from time zero {CONSTANT_COVARIATES}.")
        lines += [WEIGHTED] if self.outcome_type_.weighted else []
        if self.choice_ is not None and self.choice_.chosen != REGRESSION:
            lines.append(f"{sentence_case(str(self.choice_))}.")
        return lines

    def explain(self, x: object, cause: int | str = 1) -> Explanation:
        """Explain the prediction of one subject: path, contributions, predicted median and survival.

        With ``prediction="mixture"`` the prediction averages all groups by ``group_probability``; the path
        still follows the most probable branches.

        Args:
            x: one row: DataFrame or array (1, p).
            cause: with competing causes, the cause of the explained linear predictor, by number or name;
                incidences are reported for all causes.

        Raises:
            DataError: it is not one row, or columns are missing.
            ConfigError: unknown cause.
        """
        tree = self._tree
        horizons = round_horizons(self.event_times_, tree.time_unit)
        number = self._number(cause)
        name = self.causes_[number - 1] if tree.competing else None
        return explain_row(tree, self._cleaned(x), horizons, self._reading.longer, name)

    def summary(self, details: bool = False) -> str:
        """Summarise the model as text: groups with survival, effects within groups, and cautions.

        It includes, if computed, the results of ``validate_groups``, ``group_table`` with resamples and
        ``stability``.

        Args:
            details: add the tree of rules, the table of the groups with the parameters of their hazards,
                the evidence for them, and the estimated penalties with effective degrees of freedom.
        """
        tree, coefficients = self._tree, self._coefficient_text()
        root = self._reading.root
        parts = [f"{self._title}: {rows_text(root)}, {events_text(tree, root)}\n{self.describe()}"]
        effects = coefficients or self._effects_text()
        parts += [effects] if effects else []
        cautions = [*self.late_fit_]
        if effects and (reason := no_covariance(self)):
            cautions.append(f"Effects have no confidence intervals: {reason}")
        elif effects and (assumed := self._assumed_by_intervals):
            cautions.append(
                f"Intervals of effects take {assumed}; without penalties, inference.with_sandwich(model, X, "
                "y, sample_weight) is robust"
            )
        choice = self.choice_
        if choice is not None and choice.chosen == REGRESSION and not np.isnan(choice.gain) and not details:
            cautions.append(sentence_case(choice.finding))
        if len(self._reading.leaves) > 1:
            cautions.append(CHOSEN_RULES)
        parts += ["\n".join(["Cautions", *(f"* {each}" for each in cautions)])] if cautions else []
        if details:
            slopes = not coefficients and not effects
            parts.append(describe_tree(tree, self._reading, slopes))
            parts += [self.choice_.summary()] if self.choice_ is not None else []
        if "group_validation_" in vars(self):
            parts.append(str(self.group_validation_))
        if "group_table_" in vars(self):
            parts.append(groups_text(self.group_table_))
        if "stability_" in vars(self):
            parts.append(str(self.stability_))
        return "\n\n".join([*parts, *recalibration_texts(self)])

    @property
    def _assumed_by_intervals(self) -> str:
        """What intervals of effects assume of weights; empty with the sandwich."""
        if self.covariance_.kind == "sandwich" or not self.outcome_type_.weighted:
            return ""
        return "weights as counts, scaled to the effective sample size"

    def _effects_text(self) -> str:
        """Contrasts with confidence intervals, or slopes without where there is no covariance."""
        if not no_covariance(self):
            return "\n".join(contrast_lines(self._tree, self._reading, terms(self)))
        return "\n".join(effect_lines(self._tree, self._reading)).strip()

    def _coefficient_text(self) -> str:
        """Table of coefficients with standard errors for the summary; empty if there is none."""
        return ""
