"""Effects of columns in the groups, and explanations of the prediction of one subject.

An effect is how far the linear predictor moves when one column alone varies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
import pandas as pd
import torch
from scipy.special import expit

from sstorch._types import FloatArray
from sstorch.checks import check_columns_exist, check_integer, check_share, names_text
from sstorch.data import Preprocessor
from sstorch.data.columns import labels, numeric_values
from sstorch.data.design_matrix import dense
from sstorch.data.time_unit import CONSTANT_COVARIATES, median_text
from sstorch.exceptions import DataError
from sstorch.fitted.tree import FittedTree
from sstorch.inference.contrasts import known_categories
from sstorch.inference.covariance import HazardCovariance, covariance_of
from sstorch.metrics.checks import half_width
from sstorch.reading.functions import ReadableTree, fitted_tree
from sstorch.reading.scores import Score, to_numbers
from sstorch.threads import torch_threads

# Terms of a rule that an explanation writes out.
_EXPLAINED_TERMS = 5
_CONSTANT = "(constant)"


@torch_threads(1)  # a second one gains nothing on small matrices
def effects(
    tree: ReadableTree,
    X: object,
    columns: Sequence[str] | None = None,
    n_points: int = 60,
    level: float = 0.95,
    intervals: bool = False,
) -> pd.DataFrame:
    """Compute effects: the change of the linear predictor when one column varies, per group.

    The reference is the median of every number in X (the lower middle value for an even number of rows) and
    the most frequent category of the other columns. A number takes ``n_points`` evenly spaced values between
    its minimum and maximum in X, and its median, or all its values if there are fewer. A categorical column
    takes all categories of the training rows.

    Args:
        tree: fitted.
        X: rows with the training columns.
        columns: varied columns; None for all.
        n_points: >= 2.
        level: level of the confidence limits, in (0, 1).
        intervals: True for confidence limits from the covariance of the coefficients
            (:mod:`sstorch.inference`), for groups conditional on the gates.

    Returns:
        Columns ``cause`` with competing causes, ``group``, ``column``, ``value`` (a number or a category),
        ``effect`` (change of the linear predictor in the group), and its exponential as ``hazard ratio``,
        ``time ratio`` or ``odds ratio``, depending on the family; with ``intervals`` ``lower`` and ``upper``
        of the effect.

    Raises:
        DataError: columns are missing, or have only missing values.
        ConfigError: ``n_points`` or ``level`` is out of range, or the model has no covariance.
    """
    fitted, frame = fitted_tree(tree), tree._cleaned(X)
    level, hazards = check_share(level, "level"), covariance_of(tree).hazards if intervals else {}
    points, names = check_integer("n_points", n_points, 2), fitted.preprocessor.schema.columns
    chosen = [columns] if isinstance(columns, str) else list(names if columns is None else columns)
    check_columns_exist(chosen, names)
    known = _known_values(fitted.preprocessor, frame, points)
    pairs = [(name, value) for name in chosen for value in known[name][1]]
    varied = pd.DataFrame(pairs, columns=["column", "value"], dtype=object)
    # The reference, then a row for each value of each column.
    rows = pd.DataFrame({name: [usual] * (len(varied) + 1) for name, (usual, _) in known.items()})
    for name, own in varied.groupby("column"):
        rows.loc[own.index + 1, name] = own["value"].astype(rows[name].dtype).to_numpy()
    tables = {
        name: _table(fitted.of_cause(name), rows, varied, level, hazards.get(name)) for name in fitted.causes
    }
    if fitted.competing:
        return pd.concat(tables, names=["cause", None]).reset_index(level="cause").reset_index(drop=True)
    return tables[fitted.causes[0]]


def _table(
    tree: FittedTree, rows: pd.DataFrame, varied: pd.DataFrame, level: float, hazard: HazardCovariance | None
) -> pd.DataFrame:
    """Effects of one hazard, group by group: differences of rows from the first one, the reference."""
    leaves, x, order = tree.module.leaf_parameters(), dense(tree.encode(rows)), tree.group_numbers.argsort()
    moved = leaves.features(x[1:] - x[:1]).detach().cpu().double()
    effect = (leaves.slope.detach().cpu().double() @ moved.mT).numpy()[order]
    table = pd.concat(dict.fromkeys(range(1, len(order) + 1), varied), names=["group", None])
    table = table.reset_index(level="group").reset_index(drop=True).assign(effect=effect.ravel())
    if (ratio := tree.module.family.constant_ratio) is not None:
        table[ratio] = np.exp(table["effect"])
    if hazard is not None:  # errors are zero at the reference, NaN if the data give none
        none = (moved == 0).all(-1)
        errors = [hazard.errors(moved @ map[: moved.shape[1]]).where(~none, 0.0) for map in hazard.map]
        width = half_width(level) * torch.stack(errors)[hazard.groups].numpy()[order].ravel()
        table["lower"], table["upper"] = table["effect"] - width, table["effect"] + width
    return table


def _known_values(
    preprocessor: Preprocessor, frame: pd.DataFrame, n_points: int
) -> dict[str, tuple[float | str, list[float] | list[str]]]:
    """Reference of each column among the values of rows that a tree knows, and the values that it takes."""
    found: dict[str, tuple[float | str, list[float] | list[str]]] = {}
    for name in preprocessor.schema.columns:
        if name in preprocessor.schema.categories:
            words = known_categories(preprocessor, name)
            counts = pd.Series(labels(frame[name])).value_counts().reindex(words, fill_value=0)
            if counts.any():
                found[name] = str(counts.idxmax()), words
            continue
        numbers = numeric_values(frame[name], f"column {name!r}")
        if len(grid := np.unique(numbers[~np.isnan(numbers)])):
            usual = float(np.quantile(numbers[~np.isnan(numbers)], 0.5, method="lower"))
            if len(grid) > n_points:
                grid = np.union1d(np.linspace(grid[0], grid[-1], n_points), usual)
            found[name] = usual, grid.tolist()
    if missing := [name for name in preprocessor.schema.columns if name not in found]:
        raise DataError(
            f"column {names_text(missing)} has no value known to the tree in any row of X, and so no "
            "reference to compare with; give rows that have one"
        )
    return found


@dataclass(frozen=True)
class Explanation:
    """Path and contributions of one subject.

    Attributes:
        group: group at the end of the most probable path, 1 .. L.
        path: one row per gate on the path, indexed by node: ``score``, ``yes`` (probability that the rule
            holds), ``answer``, ``"yes"`` or ``"no"``, ``reached``, the probability of the path up to this
            gate, and ``survival``, ``"longer"`` or ``"shorter"``: mean predicted survival of the training
            rows on this side compared with the other side, ``""`` if one side has no rows.
        group_probability: probability of each group, shape (L,).
        contributions: contribution of each number, category, curve or product to the score of each gate on
            the path (columns ``"gate n"``) and to the linear predictor of the group (``"group k"``); the last
            row is ``(constant)``. A column sums to the score. The reference is the smallest training value of
            a number and the absence of a category; the constant is the score at the reference.
        values: values of these terms in original units: 1 for a present category, the number for a curve;
            imputed if missing.
        median: predicted median, +inf if survival is above 1/2 up to the last training event.
        survival: predicted survival, indexed by round times.
        time_unit: unit of the times; None if undefined.
        labels: names of numeric terms in the text.
        time_varying: True if training subjects had several rows: median and survival then assume constant
            covariates from time zero, as stated in the text.
        cause: with competing causes, the cause of the explained linear predictor.
        incidence: with competing causes, predicted incidence, one row per cause and one column per time;
            median and survival are then event-free.
    """

    group: int
    path: pd.DataFrame
    group_probability: pd.Series
    contributions: pd.DataFrame
    values: pd.Series
    median: float
    survival: pd.Series
    time_unit: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    time_varying: bool = False
    cause: str | None = None
    incidence: pd.DataFrame | None = None

    def __str__(self) -> str:
        lines = []
        for node, step in self.path.iterrows():
            survival = f", {step['survival']} survival" if step["survival"] else ""
            lines.append(f"[{node}] {step['answer']}{survival}; probability of yes {step['yes']:.3f}")
            lines += self._terms(f"gate {node}", "score, yes if >= 0")
        lines.append(f"group {self.group}, probability {self.group_probability[self.group]:.3f}")
        of_cause = f" of {self.cause}" if self.cause else ""
        lines += self._terms(f"group {self.group}", f"linear predictor{of_cause}")
        if self.incidence is None:
            predicted = f"{median_text(self.median, self.time_unit)}; {_at_times('S', self.survival)}"
        else:
            parts = (f"{name} {_at_times('F', row)}" for name, row in self.incidence.iterrows())
            predicted = f"incidence of {'; of '.join(parts)}"
        condition = f", from time zero {CONSTANT_COVARIATES}" if self.time_varying else ""
        return "\n".join([*lines, f"predicted {predicted}{condition}"])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _terms(self, column: str, name: str) -> list[str]:
        """The largest terms, what the others add up to, and their sum, all to the same decimals."""
        terms = self.contributions[column]
        total, terms = float(terms.sum()), terms[self.values.index]
        size = terms.abs()
        order = size[size > 0].sort_values(ascending=False, kind="stable").index
        shown, others = order[:_EXPLAINED_TERMS], order[_EXPLAINED_TERMS:]
        rows = [
            (terms[term], f"{self.labels[term]} = {self.values[term]:.4g}" if term in self.labels else term)
            for term in shown
        ]
        rows += [(terms[others].sum(), f"({len(others)} smaller)")] if len(others) else []
        # Three digits of the largest number; the constant takes what rounding leaves, so that columns add up.
        largest = max(float(self.contributions[column].abs().max()), abs(total))
        decimals = max(2 - math.floor(math.log10(largest)), 0) if largest > 0 else 0
        constant = round(total, decimals) - sum(round(float(value), decimals) for value, _ in rows)
        rows += [(constant, "constant"), (total, f"= {name}")]
        texts = [f"{value:+.{decimals}f}" for value, _ in rows]
        width = max(map(len, texts))
        return [f"    {text:>{width}}  {what}" for text, (_, what) in zip(texts, rows, strict=True)]


def _at_times(curve: str, values: pd.Series) -> str:
    return ", ".join(f"{curve}({time:g}) = {value:.3f}" for time, value in values.items())


def explain_row(
    tree: FittedTree,
    frame: pd.DataFrame,
    horizons: FloatArray,
    longer: Mapping[int, str],
    cause: str | None = None,
) -> Explanation:
    """Path and contributions of one row; `longer` is by gate the side with the longer survival, if known."""
    if len(frame) != 1:
        raise DataError(f"x has {len(frame)} rows; explain one at a time, such as X.iloc[[0]]")
    x, module, preprocessor = dense(tree.encode(frame)), tree.module, tree.preprocessor
    group, probability = int(tree.apply(x)[0]), tree.leaf_probability(x)[0]
    node = int(tree.leaf(x)[0]) + 2**module.topology.depth
    path = list(module.topology.ancestors(node))
    own = {f"gate {branch}": (branch, x[:, : module.n_gate_features]) for branch, _ in path}
    own[f"group {group}"] = node, x[:, x.shape[1] - module.in_features :]
    scale = np.where(preprocessor.scale_ == 0, 1.0, preprocessor.scale_)
    original = preprocessor.scaled(frame)[0] / scale + preprocessor.offset_
    columns, values, labels = dict[str, dict[str, float]](), dict[str, float](), dict[str, str]()
    for name, (place, features) in own.items():
        score = Score.of_node(tree, place, cause)
        parts = (score.weight * score.values(to_numbers(features))[0]).tolist()
        columns[name] = dict(zip([term.name for term in score.terms], parts, strict=True))
        columns[name][_CONSTANT] = score.bias
        for term in score.terms:
            values[term.name] = float(original[list(term.base)].prod())
            if term.category is None:
                drawn = term.is_curve or term.logged
                labels[term.name] = ":".join(term.columns) if drawn else term.name
    # A gate and a leaf may see a column in two ways: what one of them does not see adds nothing to it.
    contributions = pd.DataFrame(columns, index=pd.Index([*values, _CONSTANT], name="feature")).fillna(0.0)
    steps, reached = [], 1.0
    for branch, goes_left in path:
        value = float(contributions[f"gate {branch}"].sum())
        left, answer = float(expit(value)), "yes" if goes_left else "no"
        reached *= left if goes_left else 1 - left
        survival = ("longer" if longer[branch] == answer else "shorter") if branch in longer else ""
        steps.append((value, left, answer, reached, survival))
    incidence = None
    if tree.competing:
        index = pd.Index(tree.causes, name="cause")
        incidence = pd.DataFrame(tree.incidence(x, horizons)[0], index, columns=horizons)
    groups = pd.RangeIndex(1, len(probability) + 1, name="group")
    return Explanation(
        group,
        pd.DataFrame(
            steps,
            index=pd.Index([branch for branch, _ in path], name="node", dtype="int64"),
            columns=["score", "yes", "answer", "reached", "survival"],
        ),
        pd.Series(probability, index=groups, name="probability"),
        contributions,
        pd.Series(values, index=pd.Index(values, name="feature"), name="value"),
        float(tree.quantile(x, 0.5)[0]),
        pd.Series(tree.curves(x, horizons)[0], index=pd.Index(horizons, name="time"), name="survival"),
        tree.time_unit,
        labels,
        tree.time_varying,
        cause if tree.competing else None,
        incidence,
    )
