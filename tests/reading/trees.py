"""Trees whose gates are set by hand, and rules as one reads them."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from sstorch import SoftSurvivalTree, SurvivalData
from sstorch.data.columns import label
from sstorch.optim import Nodec

QUICK = {"gate_ridge": 1e-4, "n_starts": 2, "init": "random", "trainer": Nodec(macro_iterations=2)}
THRESHOLDS = {
    1: ({"pnodes": -2.0}, 11.0),
    2: ({"progrec": 1.0}, -67.5),
    3: ({"tgrade=II": 3.0, "tgrade=III": 2.0}, -1.0),
}


def leaf_of(tree: SoftSurvivalTree, X: pd.DataFrame) -> np.ndarray:
    """Leaf of each row, 0 .. L - 1 from left to right, whatever the number of its group."""
    return tree._tree.leaf(tree._encode(X))


def at_gates(tree: SoftSurvivalTree, X: pd.DataFrame) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Of a tree of depth 2: each gate, the rows that pass it, and those that go left there."""
    leaf = leaf_of(tree, X)
    return [(1, leaf >= 0, leaf < 2), (2, leaf < 2, leaf == 0), (3, leaf >= 2, leaf == 2)]


def in_original_units(tree: SoftSurvivalTree, X: pd.DataFrame) -> pd.DataFrame:
    """Encoded features in original units."""
    p = tree.preprocessor_
    return pd.DataFrame(
        p.transform(X) / np.where(p.scale_ == 0, 1, p.scale_) + p.offset_, columns=p.feature_names_out
    )


def sum_holds(rule: str, raw: pd.DataFrame) -> np.ndarray:
    """Whether a rule that is written out as a sum holds of rows in original units."""
    *words, constant, relation, zero = rule.split()
    assert (relation, zero) == (">=", "0")
    terms = zip(words[::2], words[1::2], strict=True)
    total = sum((float(number) * raw[name].to_numpy() for number, name in terms), np.zeros(len(raw)))
    held: np.ndarray = total + float(constant) >= 0
    return held


def satisfies(rule: str, X: pd.DataFrame) -> np.ndarray:
    """Whether any other rule holds of rows."""
    if rule in ("always", "never"):
        return np.full(len(X), rule == "always")
    name, sign, value = rule.split(" ", 2)
    if sign in ("<=", ">"):
        return ((X[name] <= float(value)) == (sign == "<=")).to_numpy()
    words = X[name].map(lambda cell: "missing" if pd.isna(cell) else label(cell))
    return words.isin(value.strip("{}").split(", ")).to_numpy()


def with_gates(
    tree: SoftSurvivalTree, gates: dict[int, tuple[dict[str, float], float]], data: SurvivalData
) -> SoftSurvivalTree:
    """A copy with gates of some weights per original unit and a constant, as if it had been trained so."""
    tree = copy.deepcopy(tree)
    p, names = tree.preprocessor_, tree.preprocessor_.feature_names_out
    for node, (weights, constant) in gates.items():
        gate = tree.module_.gate(node)
        with torch.no_grad():
            gate.weight.zero_()
            gate.bias.fill_(constant)
            for name, value in weights.items():
                place = names.index(name)
                gate.weight[place] = value / p.scale_[place]
                gate.bias += value * p.offset_[place]
    return renumbered(tree, data)


def renumbered(tree: SoftSurvivalTree, data: SurvivalData) -> SoftSurvivalTree:
    """The tree as if its parameters, which were changed, had been trained."""
    tree.tree_ = replace(tree.tree_, groups=None)
    tree._read_later(data)
    return tree
