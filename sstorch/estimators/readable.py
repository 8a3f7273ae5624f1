"""What a fitted soft tree tells about itself: tables, text, diagrams, explanations."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sstorch.data import Preprocessor
from sstorch.estimators import export, tables
from sstorch.estimators.base import SurvivalEstimator
from sstorch.estimators.explanation import Explanation, explain_row
from sstorch.estimators.prediction_export import export_prediction
from sstorch.estimators.simplification import SimplifiedRules, simplify
from sstorch.estimators.summary import describe_tree
from sstorch.nn import Prediction, SoftTree


class ReadableTree(SurvivalEstimator):
    """Soft tree that can be read.

    Attributes:
        module_: the trained :class:`~sstorch.nn.SoftTree`, without batch dimension.
        preprocessor_: fitted on the training rows.
        node_table_: training rows, events, median and mean predicted survival by node, indexed by heap
        number.
    """

    module_: SoftTree
    preprocessor_: Preprocessor
    node_table_: pd.DataFrame
    prediction: Prediction

    @abstractmethod
    def _encode(self, X: object) -> Tensor:
        """Encoded features of rows, (n, p)."""

    @abstractmethod
    def apply(self, X: object) -> npt.NDArray[np.int64]:
        """Leaf of each row, shape (n,)."""

    def summary(self) -> str:
        """Rules at the gates, in original units, and a table of the leaves, as text."""
        check_is_fitted(self, "module_")
        return describe_tree(self)

    def gate_features(self) -> list[str]:
        """Names of the encoded features that some gate uses."""
        check_is_fitted(self, "module_")
        if not self.module_.topology.branches:
            return []
        weights = self.module_.gate_parameters().weight
        used = (weights != 0).any(dim=-2).cpu().numpy()
        return [name for name, uses in zip(self.preprocessor_.feature_names_out, used, strict=True) if uses]

    def gate_table(self, n_terms: int | None = 4) -> pd.DataFrame:
        """One row for each gate.

        Args:
            n_terms: terms of a rule that are written out, those with the largest effects; None for all.

        Returns:
            Indexed by node in heap order (root 1, children 2n and 2n + 1): ``rows`` and ``events`` of the
            training rows whose most probable path passes the gate, ``left`` (share of them that goes left),
            ``rule`` in original units (left where it holds) and ``features``, the ``n_terms`` encoded
            features with the largest effect.
        """
        check_is_fitted(self, "module_")
        return tables.gate_table(self, n_terms)

    def gate_coefficients(self) -> pd.DataFrame:
        """Coefficients of the gates.

        Returns:
            Indexed by node and encoded feature, the largest effect first: raw ``column``, ``coefficient``
            (change of the gate's score per original unit, or where the category applies), ``effect`` (change
            over the whole training range) and ``share`` of the gate's effects.
        """
        check_is_fitted(self, "module_")
        return tables.gate_coefficients(self)

    def leaf_table(self) -> pd.DataFrame:
        """One row for each leaf.

        Returns:
            Indexed by leaf, left to right: ``node``, training ``rows`` and ``events``, ``median`` (time at
            which the mean predicted survival of these rows is 1/2, nan if that is after the last training
            event or the leaf has no rows), mean predicted survival ``S(t)`` at three times, and shape
            parameters.
        """
        check_is_fitted(self, "module_")
        return tables.leaf_table(self)

    def leaf_coefficients(self) -> pd.DataFrame:
        """Coefficients of the leaves' regressions.

        Returns:
            Indexed by leaf and encoded feature, the largest effect first: raw ``column``, ``coefficient`` per
            original unit or for the category, ``effect`` over the training range, and the exponential of the
            coefficient as ``hazard ratio``, ``time ratio`` or ``odds ratio``, whichever the family has.
            The ridge penalty shrinks them; categories have no reference, so compare two categories by the
            quotient of their ratios.
        """
        check_is_fitted(self, "module_")
        return tables.leaf_coefficients(self)

    def importance(self) -> pd.DataFrame:
        """How much the raw columns move the gates and the leaves, within their training range.

        In a gate (a leaf) the importance of a column is the largest change of the score (linear predictor)
        that it can make within its training range, as a share of the sum over columns. Gates (leaves) are
        averaged with the number of training rows that pass them. It says what the tree looks at, not what is
        lost without a column: for that see :func:`sklearn.inspection.permutation_importance`.

        Returns:
            Indexed by raw column: ``gates`` and ``leaves``, each with sum one, or zero if no column has any
            effect there (no gates, or no slopes).
        """
        check_is_fitted(self, "module_")
        return tables.importance(self)

    def explain(self, x: object) -> Explanation:
        """Path and contributions of one person.

        With ``prediction="mixture"`` the prediction averages all leaves by ``leaf_probability``, and the path
        is that of the most probable branches all the same.

        Args:
            x: one row: DataFrame or array (1, p).

        Raises:
            DataError: it is not one row, or columns are missing.
        """
        check_is_fitted(self, "module_")
        return explain_row(self, x)

    def simplify(self, X: object, tolerance: float = 0.01) -> SimplifiedRules:
        """Shorter rules that route nearly all rows as the gates do.

        Features are taken out of a gate one after the other, those that vary the least in it first, each
        replaced by its mean among the rows that pass the gate, as long as at most a share ``tolerance`` of
        these rows changes its side. The tree itself stays as it is.

        Args:
            X: rows, best those of training.
            tolerance: in [0, 1).

        Raises:
            ConfigError: ``tolerance`` is no share.
        """
        check_is_fitted(self, "module_")
        return simplify(self, X, tolerance)

    def export_text(self, n_terms: int | None = 4) -> str:
        """The tree as indented rules in original units, with rows, events and median of each leaf.

        Args:
            n_terms: as in :meth:`gate_table`.
        """
        check_is_fitted(self, "module_")
        return export.as_text(self, n_terms)

    def export_graphviz(self, n_terms: int | None = 3) -> str:
        """The tree in the DOT language of Graphviz (``dot -Tsvg``).

        Args:
            n_terms: as in :meth:`gate_table`.
        """
        check_is_fitted(self, "module_")
        return export.as_graphviz(self, n_terms)

    def export_prediction(self, path: str | Path) -> None:
        """Write the prediction as one file for torch alone: ``torch.export.load(path).module()(x, times)``.

        Imputation, scaling and tree are in it; it gives S(t | x), shape (N, T), with N and T free. ``x`` are
        the encoded features in original units, shape (N, p), float64: numbers as they are, 1 where a category
        applies and 0 elsewhere, NaN where missing; ``times`` (T,) float64, >= 0. The names of the features
        are in the extra file ``sstorch.json``. Columns are not checked there.

        Args:
            path: file, by convention ``*.pt2``.

        Raises:
            ConfigError: the file cannot be written, or the leaves are of a family that torch cannot trace
                (``generalized_gamma``).
        """
        check_is_fitted(self, "module_")
        export_prediction(self, Path(path))
