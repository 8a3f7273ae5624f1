"""The tree as text: a rule per gate, a table of the leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch.data import SurvivalData

if TYPE_CHECKING:
    from sstorch.estimators.soft_survival_tree import SoftSurvivalTree

# Terms of a rule that are written out; the others are counted.
_TERMS = 4


def node_table(estimator: SoftSurvivalTree, data: SurvivalData) -> pd.DataFrame:
    """Training rows and events by node, indexed by heap number, with the mean survival curve's quartiles.

    Columns ``S(t)``: mean predicted survival of the node's rows at the quartiles t of the event times; nan
    for a node without rows. If sensitive groups are known, the share of each among the rows.
    """
    topology = estimator.module_.topology
    times = np.quantile(estimator.event_times_, [0.25, 0.5, 0.75])
    curves = np.asarray(estimator.predict_survival_function(data.frame, times))
    leaf = estimator.apply(data.frame) + 2**topology.depth
    rows = []
    for node in (*topology.branches, *topology.leaves):
        inside = (leaf >> (topology.depth - topology.level(node))) == node
        mean = curves[inside].mean(axis=0) if inside.any() else np.full(len(times), np.nan)
        rows.append(
            {"node": node, "rows": int(inside.sum()), "events": int(data.event[inside].sum())}
            | {f"S({time:g})": float(value) for time, value in zip(times, mean, strict=True)}
            | _group_shares(data, inside)
        )
    return pd.DataFrame(rows).set_index("node")


def _group_shares(data: SurvivalData, inside: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Share of each sensitive group among some rows; nan if there are none."""
    if data.groups is None:
        return {}
    counts = data.groups.subset(np.flatnonzero(inside)).counts
    shares = counts / counts.sum() if counts.sum() else np.full(len(counts), np.nan)
    names = [f"{data.groups.name}={label}" for label in data.groups.labels]
    return dict(zip(names, shares.tolist(), strict=True))


def describe_tree(estimator: SoftSurvivalTree) -> str:
    """Text of a fitted tree.

    A gate sends a row left where its score is >= 0. Scores are in original units, largest terms first (by
    the effect of the feature's whole training range); a category counts 1 where it applies.
    """
    module, table = estimator.module_, estimator.node_table_
    head = f"depth {module.topology.depth}, {module.family.name} leaves"
    lines = [f"Soft survival tree: {head}, {table['rows'].iloc[0]} rows, {table['events'].iloc[0]} events"]
    lines += _subtree(estimator, 1, "", "")
    leaves = table.loc[list(module.topology.leaves)].copy()
    for k, name in enumerate(module.family.shape_names):
        leaves.insert(2 + k, name, [float(module.leaf(n).shape.detach()[k]) for n in module.topology.leaves])
    leaves.insert(0, "leaf", range(len(leaves)))
    text = leaves.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="-")
    constants = module.family.describe(float(module.log_time_scale.exp()))
    where = "; shapes are those at x = 0" if module.family.ancillary == "linear" else ""
    lines += ["", f"Leaves; S(t) is the mean predicted survival of their rows{where}", text]
    return "\n".join([*lines, constants] if constants else lines)


def _subtree(estimator: SoftSurvivalTree, node: int, lead: str, indent: str) -> list[str]:
    topology = estimator.module_.topology
    size = f"{estimator.node_table_['rows'][node]} rows"
    if node in topology.leaves:
        return [f"{lead}leaf {node - 2**topology.depth} ({size})"]
    lines = [f"{lead}[{node}] {size}: left if {_rule(estimator, node)}"]
    lines += _subtree(estimator, 2 * node, f"{indent}|- left:  ", f"{indent}|  ")
    return lines + _subtree(estimator, 2 * node + 1, f"{indent}`- right: ", f"{indent}   ")


def _rule(estimator: SoftSurvivalTree, node: int) -> str:
    gate, preprocessor = estimator.module_.gate(node), estimator.preprocessor_
    weight = gate.weight.detach().cpu().numpy()
    slope = weight * preprocessor.scale_
    constant = float(gate.bias.detach()) - float(slope @ preprocessor.offset_)
    # After scaling every feature spans one unit, so the weight is the effect of the whole range.
    order = [j for j in np.argsort(-np.abs(weight), kind="stable") if slope[j] != 0.0]
    names = preprocessor.feature_names_out
    terms = [f"{slope[j]:+.3g} {names[j]}" for j in order[:_TERMS]]
    if len(order) > _TERMS:
        terms.append(f"({len(order) - _TERMS} smaller terms)")
    return " ".join([*terms, f"{constant:+.3g}", ">= 0"])
