"""Functions of a fitted tree that read it: rules, tables, effects, simpler and merged forms."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from sstorch.checks import no_tree
from sstorch.data.subjects import Paths
from sstorch.fitted.tree import FittedTree
from sstorch.inference.model import covariance_of
from sstorch.reading import tables
from sstorch.reading.effects import SampleOfTrees
from sstorch.reading.effects import effects as effects_of
from sstorch.reading.hooks import HasText, ReadableTree
from sstorch.reading.interactions import interactions as interactions_of
from sstorch.reading.merging import MergedLeaves
from sstorch.reading.merging import merge_leaves as merged
from sstorch.reading.nodes import shown_leaves
from sstorch.reading.paths import path_table as stays
from sstorch.reading.simplify import SimplifiedRules
from sstorch.reading.simplify import simplify as shortened


def _readable(tree: HasText) -> HasText:
    """The tree, soft or exact; a ConfigError for anything else."""
    if not hasattr(type(tree), "_export_text"):
        raise no_tree(tree)
    return tree


def _fitted(tree: ReadableTree) -> FittedTree:
    """The trained tree of a soft one; a ConfigError for anything else."""
    if not hasattr(type(tree), "_tree"):
        raise no_tree(tree, "soft survival tree")
    return tree._tree


def export_text(tree: HasText, n_terms: int | None = 4) -> str:
    """The tree as indented rules in original units, with rows, events and median of each group.

    What is not shown of it, ``tree.summary()`` says.

    Args:
        tree: fitted.
        n_terms: terms of a rule that are written out, those with the largest effects; None for all.
    """
    return _readable(tree)._export_text(n_terms)


def export_graphviz(tree: HasText, n_terms: int | None = 3) -> str:
    """The tree in the DOT language of Graphviz (``dot -Tsvg``); what is shown is as in ``tree.summary()``.

    Args:
        tree: fitted.
        n_terms: terms of a rule that are written out, those with the largest effects; None for all.
    """
    return _readable(tree)._export_graphviz(n_terms)


def gate_table(tree: ReadableTree, n_terms: int | None = 4) -> pd.DataFrame:
    """One row for each gate.

    Args:
        tree: fitted.
        n_terms: terms of a rule that are written out, those with the largest effects; None for all, and for
            all categories of long lists.

    Returns:
        Indexed by node in heap order (root 1, children 2n and 2n + 1): ``rows`` and ``events`` of the
        training rows whose most probable path passes the gate, ``yes`` (share of them for which
        the rule holds), ``rule`` in original units and ``features``, the ``n_terms`` encoded
        features with the largest effect. All terms of a rule together send every training row that passes
        the gate the way it goes, with as few digits as that takes. Of a categorical column the most
        frequent category among these rows is the reference, which is not written. A rule of one number
        is a threshold (``pnodes <= 5``), one of one categorical column a list (``tgrade in {II, III}``).
    """
    return tables.gate_table(_fitted(tree), tree.node_table_, tree._gate_rules, n_terms)


def gate_terms(tree: ReadableTree) -> list[str]:
    """Names of the encoded features that some gate uses."""
    return tables.gate_terms(_fitted(tree))


def gate_coefficients(tree: ReadableTree) -> pd.DataFrame:
    """Coefficients of the gates.

    Returns:
        Indexed by node and encoded feature, the largest effect first: raw ``column``, ``coefficient``
        (change of the gate's score per original unit, or against the reference of a categorical column,
        its most frequent category in training, which is left out), ``effect`` (change over the whole
        training range) and ``share`` of the gate's effects.
    """
    return tables.gate_coefficients(_fitted(tree))


def leaf_table(tree: ReadableTree) -> pd.DataFrame:
    """One row for each group: what its training rows had, and what is predicted for them.

    Returns:
        Indexed by ``group``, 1 for the longest survival; columns of two levels, quantity and statistic:
        training ``rows`` and ``events``; ``median`` with its Kaplan-Meier ``estimate``, 95 % confidence
        limits ``lower`` and ``upper``, and ``model``, the time at which the mean predicted survival of the
        rows is 1/2, nan if that is after the last training event; ``S(t)`` at three times with ``model``,
        the mean prediction, and at the first and the last with ``estimate`` (Turnbull's where times are
        intervals, without limits); and shape parameters. Estimates are nan where they are not reached or
        not known, all but the counts nan where a group has no rows. Estimates, limits and means are weighted,
        numbers of rows and events are not. Where causes compete there are ``events CAUSE`` instead of
        ``events``, ``F(t) CAUSE`` with Aalen-Johansen's ``estimate`` and ``model``, and median and ``S(t)``
        are free of any event.

        These rows have placed the gates, which makes groups look further apart than they are;
        :func:`~sstorch.validation.group_table` corrects that. With time-varying covariates
        predicted median and ``S(t)`` are from time zero if the covariates stay as in the row.
    """
    return tables.leaf_table(_fitted(tree), tree.node_table_)


def leaf_coefficients(tree: ReadableTree) -> pd.DataFrame:
    """Coefficients of the groups' regressions.

    Returns:
        Indexed by group and encoded feature, and by cause before them where causes compete, the largest
        effect first: raw ``column``, ``coefficient`` per
        original unit or of a category against the reference of its column (the most frequent in training,
        which is left out), ``effect`` over the training range, and the exponential of the coefficient as
        ``hazard ratio``, ``time ratio`` or ``odds ratio``, whichever the family has. The ridge penalty
        shrinks them.
    """
    return tables.leaf_coefficients(_fitted(tree))


def importance(tree: ReadableTree) -> pd.DataFrame:
    """How much the raw columns move the gates and the leaves, within their training range.

    In a gate (a leaf) the importance of a column is the largest change of the score (linear predictor)
    that it can make within its training range, as a share of the sum over columns. Gates (leaves) are
    averaged with the number of training rows that pass them. It says what the tree looks at, not what is
    lost without a column: for that see :func:`sklearn.inspection.permutation_importance`.

    Returns:
        Indexed by raw column: ``gates`` and ``leaves``, or ``leaves CAUSE`` of each cause where causes
        compete, each with sum one, or zero if no column has any effect there (no gates, or no slopes).
    """
    return tables.importance(_fitted(tree), tree.node_table_, tree.feature_names_in_)


def effects(
    tree: ReadableTree,
    X: object,
    columns: Sequence[str] | None = None,
    n_points: int = 60,
    sample: SampleOfTrees | None = None,
    level: float = 0.9,
    intervals: bool = False,
) -> pd.DataFrame:
    """What each column does in the groups: the change of the linear predictor as it alone varies.

    Everyone is compared with a reference: the median of every number in X (of an even number of rows the
    lower middle value), and the most frequent category of the other columns. A number goes through
    ``n_points`` evenly spaced values from its smallest to its largest in X, and its median; or through
    all that it has if there are no more. A category goes through all that the training rows had. With
    ``interactions`` the effect is that at the reference of the other columns.

    Args:
        tree: fitted.
        X: rows with the training columns.
        columns: that vary; all if None.
        n_points: >= 2.
        sample: trees for a band, :func:`~sstorch.soft.bootstrap_trees` of the same parameters and rows.
        level: share of the sample's trees between lower and upper end at each value, or of the confidence
            limits, in (0, 1).
        intervals: give confidence limits, by the covariance of the coefficients (:mod:`sstorch.inference`);
            of groups given their gates.

    Returns:
        Columns ``cause`` where causes compete, ``group``, ``column``, ``value`` (a number or a category),
        ``effect`` (change of the linear predictor in the group), and its exponential as ``hazard ratio``,
        ``time ratio`` or ``odds ratio``, whichever the family has; with a sample or ``intervals``
        ``lower`` and ``upper`` of the effect.

    Raises:
        DataError: columns are missing, or have no known value in any row.
        ConfigError: ``n_points`` or ``level`` is out of range; the model has no covariance; or a band of a
            sample is asked for, and the groups of a tree have slopes of their own: groups of different trees
            do not correspond.
    """
    covariance = covariance_of(tree) if intervals else None
    return effects_of(_fitted(tree), tree._cleaned(X), columns, n_points, sample, level, covariance)


def interactions(tree: ReadableTree, X: object, n_pairs: int = 6, n_points: int = 9) -> pd.DataFrame:
    """What products of two columns add to the effects of each, the strongest pairs first.

    Each pair is a grid of values of both columns: of a number quantiles in X, so that every value stands for
    as many rows; of a category all that the training rows had, with their shares in X. Other columns stay at
    their reference, as in :func:`effects`. From the linear predictor on the grid the means of rows and
    columns are taken off: what is left is the interaction (Cox, 1984), with mean zero along either column.

    Args:
        tree: fitted with ``Columns(interactions=...)``.
        X: rows with the training columns.
        n_pairs: pairs at most, >= 1.
        n_points: values of a number at most, >= 2.

    Returns:
        Columns ``cause`` where causes compete, ``group``, ``column``, ``other``, ``value``, ``other value``,
        ``effect`` (on the linear predictor, beyond the effects of both columns), its exponential as ``hazard
        ratio``, ``time ratio`` or ``odds ratio``, whichever the family has, and ``size``, the standard
        deviation of the pair's effect, the largest among causes and groups, by which pairs are ordered.

    Raises:
        ConfigError: the tree has no products, or a number is out of range.
        DataError: columns are missing, or have no known value in any row.
    """
    return interactions_of(_fitted(tree), tree._cleaned(X), n_pairs, n_points)


def path_table(tree: ReadableTree, X: object, *, entry: object, id: object) -> pd.DataFrame:
    """When a subject with time-varying covariates is in which group, and which change led to the next one.

    Args:
        tree: fitted.
        X: rows with the training columns.
        entry: time from which each row holds, (n,): until the subject's next row, the last one for ever.
        id: subject of each row, (n,).

    Returns:
        One row for each stay of a subject in a group: ``id``, ``from``, ``until``, ``group``, and of all but
        the first the ``gate`` that has turned, and ``why``: what is other in its columns, and its rule.

    Raises:
        DataError: two rows of a subject begin at once, a column is missing, or entry and id are not (n,).
    """
    fitted, frame = _fitted(tree), tree._cleaned(X)
    return stays(fitted, tree._gate_rules, frame, Paths.of(entry, id, len(frame)))


def simplify(tree: ReadableTree, X: object, tolerance: float = 0.01) -> SimplifiedRules:
    """Shorter rules that route nearly all rows as the gates do.

    Features are taken out of a gate one after the other, those that vary the least in it first, each
    replaced by its mean among the rows that pass the gate, as long as at most a share ``tolerance`` of
    these rows changes its side. The tree itself stays as it is.

    Args:
        tree: fitted.
        X: rows, best those of training.
        tolerance: in [0, 1).

    Raises:
        ConfigError: ``tolerance`` is no share.
    """
    return shortened(_fitted(tree), tree._encode(X), tolerance)


def merge_leaves(
    tree: ReadableTree, X: object, tolerance: float = 0.05, min_leaf: float = 0.0
) -> MergedLeaves:
    """Groups that do not differ, merged: a reading, the tree itself stays as it is.

    First every group with fewer than a share ``min_leaf`` of the rows joins one beside it, below the
    lowest gate that parts them: that with the nearest mean curve. Then the two groups whose mean curves
    are nearest are joined, wherever they are, again and again, until any two differ by ``tolerance`` or
    more. Curves are the predicted survival of the groups' rows from zero to the last training event, or
    where causes compete the predicted incidence of each, and their distance is the largest difference at any
    time. Groups without rows always join others.

    Args:
        tree: fitted.
        X: rows, best those of training.
        tolerance: of probabilities, in [0, 1); with 0 only small groups join others.
        min_leaf: in [0, 1).

    Raises:
        ConfigError: ``tolerance`` or ``min_leaf`` is no share.
    """
    fitted, nodes = _fitted(tree), tree.node_table_
    n_leaves = len(fitted.module.topology.leaves)
    ways = {node - n_leaves: tuple(path) for node, path in shown_leaves(nodes).items()}
    return merged(fitted, tree._encode(X), tree.event_times_, ways, tree._gate_rules, tolerance, min_leaf)
