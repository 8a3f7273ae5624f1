"""Interface of fitted models for this package, and reading of their training rows."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray
from sstorch.checks import check_tree
from sstorch.data import SurvivalData
from sstorch.data.coded import RowFeatures
from sstorch.data.fingerprint import fingerprint
from sstorch.fitted import FittedTree
from sstorch.inference import Inferable
from sstorch.reading.late_fit import late_fit
from sstorch.reading.nodes import node_table
from sstorch.reading.rules import GateRule, gate_rules
from sstorch.reading.texts import as_graphviz, as_text, group_rules


class HasText(Protocol):
    """A fitted tree, soft or exact, that can be written as text and as a graph."""

    def _export_text(self, n_terms: int | None) -> str:
        """Indented rules."""

    def _export_graphviz(self, n_terms: int | None) -> str:
        """The tree in the DOT language."""


class ReadableTree(Inferable):
    """Base class of the estimators whose soft tree is read; not for use by itself."""

    event_times_: FloatArray
    feature_names_in_: npt.NDArray[np.object_]
    _training_rows: SurvivalData

    @abstractmethod
    def _encode(self, X: object) -> RowFeatures:
        """Encoded features of rows, (n, p)."""

    @cached_property
    def node_table_(self) -> pd.DataFrame:
        """Training rows, events and survival by node, predicted and by Kaplan-Meier, by heap number."""
        return self._make_node_table()

    @cached_property
    def late_fit_(self) -> tuple[str, ...]:
        """Groups whose mean curve leaves the band of Kaplan-Meier late in follow-up, a sentence each."""
        self._make_node_table()
        return self.late_fit_

    @cached_property
    def training_rows_(self) -> str:
        """Fingerprint of the training rows."""
        self._make_node_table()
        return self.training_rows_

    @cached_property
    def _gate_rules(self) -> dict[int, GateRule]:
        """Rules of the gates, with as few digits as separate the training rows."""
        self._make_node_table()
        return self._gate_rules

    def _read_later(self, data: SurvivalData) -> None:
        """Hold the training rows until what is read of them is looked at: of most trees it never is."""
        self.__dict__.pop("node_table_", None)
        self.__dict__.pop("_gate_rules", None)
        self.__dict__.pop("late_fit_", None)
        self.__dict__.pop("training_rows_", None)
        self._training_rows = data

    def _make_node_table(
        self, x: RowFeatures | None = None, incidences: FloatArray | None = None
    ) -> pd.DataFrame:
        """Make node table and rules, of the encoded training rows if they are available; release the rows."""
        tree, data = self._tree, self._training_rows
        x = tree.encode(data.frame) if x is None else x
        self.node_table_ = node_table(tree, x, data, self.event_times_, incidences)
        self._gate_rules = gate_rules(tree, x)
        self.late_fit_, self.training_rows_ = late_fit(tree, x, data), fingerprint(data)
        del self._training_rows
        return self.node_table_

    def _group_rules(self, n_terms: int | None) -> dict[int, str]:
        return group_rules(self._tree, self.node_table_, self._gate_rules, n_terms)

    def _export_text(self, n_terms: int | None) -> str:
        return as_text(self._tree, self.node_table_, self._gate_rules, n_terms)

    def _export_graphviz(self, n_terms: int | None) -> str:
        return as_graphviz(self._tree, self.node_table_, self._gate_rules, n_terms)


def readable(tree: HasText) -> HasText:
    """The tree, soft or exact; a ConfigError for anything else."""
    check_tree(tree, "_export_text")
    return tree


def fitted_tree(tree: ReadableTree) -> FittedTree:
    """The trained tree of a soft one; a ConfigError for anything else."""
    check_tree(tree, "_tree", "soft survival tree")
    return tree._tree
