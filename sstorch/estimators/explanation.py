"""Why a person gets the prediction: the path, and what each feature adds to the scores on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sstorch.exceptions import DataError

if TYPE_CHECKING:
    from sstorch.estimators.readable import ReadableTree

_TERMS = 5


@dataclass(frozen=True)
class Explanation:
    """Path and contributions of one person.

    Attributes:
        leaf: of the most probable path, 0 .. L - 1 from left to right.
        path: a row for each gate on the path, indexed by node: ``score``, ``left`` (probability of going
            left), ``side`` taken, and ``reached``, the probability of everything up to and with this step.
        leaf_probability: of all leaves, shape (L,).
        contributions: what each encoded feature adds to the score of each gate on the path (columns
            ``"gate n"``) and to the linear predictor of the leaf (``"leaf k"``), with the last row
            ``(constant)``; a column sums to the score. Contributions count from the smallest training value
            of a number, and from the absence of a category: the constant is the score of who has these.
        values: the person's encoded features in original units, a category 1 where it applies; imputed where
            missing.
    """

    leaf: int
    path: pd.DataFrame
    leaf_probability: pd.Series
    contributions: pd.DataFrame
    values: pd.Series

    def __str__(self) -> str:
        lines = []
        for node, step in zip(self.path.index, self.path.to_dict("records"), strict=True):
            lines.append(
                f"[{node}] {step['side']}, probability of left {step['left']:.3f}, score {step['score']:+.3g}"
            )
            lines += self._terms(f"gate {node}")
        lines.append(f"leaf {self.leaf}, probability {self.leaf_probability[self.leaf]:.3f}")
        return "\n".join([*lines, *self._terms(f"leaf {self.leaf}")])

    def _terms(self, column: str) -> list[str]:
        table = pd.DataFrame({"term": self.contributions[column], "value": self.values}).loc[
            self.values.index
        ]
        table = table.iloc[np.argsort(-table["term"].abs().to_numpy(), kind="stable")][:_TERMS]
        terms = zip(table.index, table["term"], table["value"], strict=True)
        return [f"    {term:+.3g}  {name} = {value:.4g}" for name, term, value in terms if term]


def explain_row(tree: ReadableTree, x: object) -> Explanation:
    """See :meth:`ReadableTree.explain`."""
    encoded = tree._encode(x)
    if len(encoded) != 1:
        raise DataError(f"x has {len(encoded)} rows; explain one at a time, such as X.iloc[[0]]")
    module, preprocessor = tree.module_, tree.preprocessor_
    topology = module.topology
    with torch.no_grad():
        leaf = int(module.apply_leaf(encoded)[0])
        probability = module.log_leaf_probability(encoded).exp()[:, 0].cpu().numpy()
        node = leaf + 2**topology.depth
        columns, steps, reached = {}, [], 1.0
        for branch, goes_left in topology.ancestors(node):
            gate = module.gate(branch)
            columns[f"gate {branch}"] = _terms(encoded[0], gate.weight, gate.bias)
            score = float(columns[f"gate {branch}"].sum())
            left = float(torch.sigmoid(torch.tensor(score, dtype=torch.float64)))
            reached *= left if goes_left else 1 - left
            side = "left" if goes_left else "right"
            steps.append({"score": score, "left": left, "side": side, "reached": reached})
        own = module.leaf(node)
        columns[f"leaf {leaf}"] = _terms(encoded[0], own.slope, own.intercept)
    names = preprocessor.feature_names_out
    scale = np.where(preprocessor.scale_ == 0, 1.0, preprocessor.scale_)
    values = encoded[0].cpu().double().numpy() / scale + preprocessor.offset_
    index = pd.Index([step for step, _ in topology.ancestors(node)], name="node", dtype="int64")
    return Explanation(
        leaf,
        pd.DataFrame(steps, index=index, columns=["score", "left", "side", "reached"]),
        pd.Series(probability, index=pd.RangeIndex(len(probability), name="leaf"), name="probability"),
        pd.DataFrame(columns, index=pd.Index([*names, "(constant)"], name="feature")),
        pd.Series(values, index=pd.Index(names, name="feature"), name="value"),
    )


def _terms(x: Tensor, weight: Tensor, bias: Tensor) -> np.ndarray:
    return torch.cat([weight * x, bias[None]]).cpu().double().numpy()
