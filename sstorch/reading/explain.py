"""Why one subject gets its prediction: the path, and what adds to the linear predictor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

import numpy as np
import pandas as pd
import torch

from sstorch._types import FloatArray
from sstorch.data.coded import dense
from sstorch.data.subjects import CONSTANT_COVARIATES
from sstorch.data.time_unit import median_text
from sstorch.exceptions import DataError
from sstorch.fitted.tree import FittedTree
from sstorch.reading.scores import Score, to_numbers

# Terms of a rule that an explanation writes out.
_EXPLAINED_TERMS = 5
_CONSTANT = "(constant)"


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
        for node, step in zip(self.path.index, self.path.to_dict("records"), strict=True):
            survival = f", {step['survival']} survival" if step["survival"] else ""
            lines.append(f"[{node}] {step['answer']}{survival}; probability of yes {step['yes']:.3f}")
            lines += self._terms(f"gate {node}", "score, yes if >= 0")
        lines.append(f"group {self.group}, probability {self.group_probability[self.group]:.3f}")
        of_cause = f" of {self.cause}" if self.cause else ""
        lines += self._terms(f"group {self.group}", f"linear predictor{of_cause}")
        return "\n".join([*lines, self._prediction()])

    def _prediction(self) -> str:
        if self.incidence is not None:
            parts = []
            for name, row in self.incidence.iterrows():
                values = ", ".join(f"F({time:g}) = {value:.3f}" for time, value in row.items())
                parts.append(f"{name} {values}")
            return f"predicted incidence of {'; of '.join(parts)}{self._condition}"
        at = ", ".join(f"S({time:g}) = {value:.3f}" for time, value in self.survival.items())
        return f"predicted {median_text(self.median, self.time_unit)}; {at}{self._condition}"

    @property
    def _condition(self) -> str:
        return f", from time zero {CONSTANT_COVARIATES}" if self.time_varying else ""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _terms(self, column: str, name: str) -> list[str]:
        """The largest terms, what the others add up to, and their sum, all to the same decimals."""
        terms = self.contributions[column]
        size = terms[self.values.index].abs()
        shown = size[size > 0].sort_values(ascending=False, kind="stable").index[:_EXPLAINED_TERMS]
        n_others = int(size.gt(0).sum()) - len(shown)
        total = float(terms.sum())
        # Three digits of the largest number; the constant takes what rounding leaves, so that columns add up.
        largest = max(float(terms.abs().max()), abs(total))
        decimals = max(2 - math.floor(math.log10(largest)), 0) if largest > 0 else 0
        rows = [
            (
                float(terms[term]),
                f"{self.labels[term]} = {self.values[term]:.4g}" if term in self.labels else term,
            )
            for term in shown
        ]
        if n_others:
            rest = float(terms[self.values.index].sum() - terms[shown].sum())
            rows.append((rest, f"({n_others} smaller)"))
        constant = round(total, decimals) - sum(round(value, decimals) for value, _ in rows)
        lines = [*rows, (constant, "constant"), (total, f"= {name}")]
        texts = [f"{value:+.{decimals}f}" for value, _ in lines]
        width = max(map(len, texts))
        return [f"    {text:>{width}}  {what}" for text, (_, what) in zip(texts, lines, strict=True)]


def explain_row(
    tree: FittedTree,
    frame: pd.DataFrame,
    horizons: FloatArray,
    longer: Mapping[int, str],
    cause: str | None = None,
) -> Explanation:
    """Path and contributions of one row, of the columns of the preprocessing, at increasing horizons.

    `longer` is by gate the side with the longer survival, ``"yes"`` or ``"no"``; none if unknown. With
    competing causes the linear predictor of `cause` is explained.
    """
    if len(frame) != 1:
        raise DataError(f"x has {len(frame)} rows; explain one at a time, such as X.iloc[[0]]")
    x, module, preprocessor = (
        dense(tree.encode(frame)),
        tree.hazards[cause or tree.causes[0]],
        tree.preprocessor,
    )
    topology = module.topology
    leaf, group, probability = int(tree.leaf(x)[0]), int(tree.apply(x)[0]), tree.leaf_probability(x)[0]
    columns: dict[str, dict[str, float]] = {}
    values: dict[str, float] = {}
    labels: dict[str, str] = {}
    scaled = preprocessor.scaled(frame)[0]
    scale = np.where(preprocessor.scale_ == 0, 1.0, preprocessor.scale_)
    original = scaled / scale + preprocessor.offset_

    def add(column: str, score: Score, features: FloatArray) -> float:
        """A score's terms as a column, and their sum."""
        parts = [*(score.weight * score.values(features)[0]).tolist(), score.bias]
        names = [*(term.name for term in score.terms), _CONSTANT]
        columns[column] = dict(zip(names, parts, strict=True))
        values.update((term.name, float(original[list(term.base)].prod())) for term in score.terms)
        labels.update(
            (term.name, ":".join(term.columns) if term.is_curve or term.logged else term.name)
            for term in score.terms
            if term.category is None
        )
        return float(np.sum(parts))

    node, steps, reached = leaf + 2**topology.depth, [], 1.0
    for branch, goes_left in topology.ancestors(node):
        gate = module.gate(branch)
        score = Score.of_gate(preprocessor, to_numbers(gate.weight), float(gate.bias.detach()))
        value = add(f"gate {branch}", score, to_numbers(x[:, : module.n_gate_features]))
        left = float(torch.sigmoid(torch.tensor(value, dtype=torch.float64)))
        reached *= left if goes_left else 1 - left
        answer = "yes" if goes_left else "no"
        survival = ("longer" if longer[branch] == answer else "shorter") if branch in longer else ""
        steps.append(
            {"score": value, "yes": left, "answer": answer, "reached": reached, "survival": survival}
        )
    regression = module.leaf(node)
    score = Score.of_leaf(preprocessor, to_numbers(regression.slope), float(regression.intercept.detach()))
    add(f"group {group}", score, to_numbers(x[:, x.shape[1] - module.n_features :]))
    index = pd.Index([step for step, _ in topology.ancestors(node)], name="node", dtype="int64")
    names = pd.Index([*values, _CONSTANT], name="feature")
    incidence = None
    if tree.competing:
        incidence = pd.DataFrame(
            tree.incidence(x, horizons)[0], pd.Index(tree.causes, name="cause"), columns=horizons
        )
    return Explanation(
        group,
        pd.DataFrame(steps, index=index, columns=["score", "yes", "answer", "reached", "survival"]),
        pd.Series(
            probability, index=pd.RangeIndex(1, len(probability) + 1, name="group"), name="probability"
        ),
        # A gate and a leaf may see a column in two ways: what one of them does not see adds nothing to it.
        pd.DataFrame(columns, index=names).fillna(0.0),
        pd.Series(values, index=pd.Index(values, name="feature"), name="value"),
        float(tree.quantile(x, 0.5)[0]),
        pd.Series(tree.curves(x, horizons)[0], index=pd.Index(horizons, name="time"), name="survival"),
        tree.time_unit,
        labels,
        tree.time_varying,
        cause if tree.competing else None,
        incidence,
    )
