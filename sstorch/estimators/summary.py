"""The tree as text: rules, a table of the leaves; and the table of its nodes that they are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from sstorch.data import SurvivalData
from sstorch.estimators.export import as_text

if TYPE_CHECKING:
    from sstorch.estimators.readable import ReadableTree

# Terms of a rule that are written out; the others are counted.
_TERMS = 4
# Halvings of the follow-up in which a median is looked for: nine digits.
_HALVINGS = 32
# Rows whose curves are added up at a time.
_ROWS = 2**15


def node_table(estimator: ReadableTree, data: SurvivalData) -> pd.DataFrame:
    """Training rows and events by node, indexed by heap number, with median and quartiles of the mean curve.

    Columns: ``median``, the time at which the mean predicted survival of the node's rows is 1/2, nan if that
    is later than the last event; ``S(t)``, mean predicted survival of these rows at the quartiles t of the
    event times; nan for a node without rows. If sensitive groups are known, the share of each among the rows.
    """
    topology = estimator.module_.topology
    times = np.quantile(estimator.event_times_, [0.25, 0.5, 0.75])
    curves = estimator.predict_survival_function(data.frame, times)
    leaf = estimator.apply(data.frame) + 2**topology.depth
    # Node of each row at each level, (n, D + 1).
    path = leaf[:, None] >> np.arange(topology.depth, -1, -1)
    medians = _medians(estimator, data.frame, path)
    rows = []
    for node in (*topology.branches, *topology.leaves):
        inside = path[:, topology.level(node)] == node
        mean = curves[inside].mean(axis=0) if inside.any() else np.full(len(times), np.nan)
        rows.append(
            {"node": node, "rows": int(inside.sum()), "events": int(data.event[inside].sum())}
            | {"median": float(medians[node])}
            | {f"S({time:g})": float(value) for time, value in zip(times, mean, strict=True)}
            | _group_shares(data, inside)
        )
    return pd.DataFrame(rows).set_index("node")


def _medians(
    estimator: ReadableTree, frame: pd.DataFrame, path: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Time at which the mean curve of each node's rows is 1/2, by halving; nan where it is not reached."""
    x, n_nodes = estimator._encode(frame), 2 ** path.shape[1]
    counts = np.bincount(path.ravel(), minlength=n_nodes)
    last = float(estimator.event_times_[-1])

    def mean_survival(times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        total = np.zeros(n_nodes)
        with torch.no_grad():
            for start in range(0, len(x), _ROWS):
                part = path[start : start + _ROWS]
                own = torch.as_tensor(times[part], device=x.device)
                survival = estimator.module_.survival(x[start : start + _ROWS], own, estimator.prediction)
                weights = survival.cpu().double().numpy().ravel()
                total += np.bincount(part.ravel(), weights=weights, minlength=n_nodes)
        return total / np.maximum(counts, 1)

    low, high = np.zeros(n_nodes), np.full(n_nodes, last)
    unreached = (mean_survival(high) > 0.5) | (counts == 0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above = mean_survival(middle) > 0.5
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(unreached, np.nan, high)


def _group_shares(data: SurvivalData, inside: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Share of each sensitive group among some rows; nan if there are none."""
    if data.groups is None:
        return {}
    counts = data.groups.subset(np.flatnonzero(inside)).counts
    shares = counts / counts.sum() if counts.sum() else np.full(len(counts), np.nan)
    names = [f"{data.groups.name}={label}" for label in data.groups.labels]
    return dict(zip(names, shares.tolist(), strict=True))


def describe_tree(estimator: ReadableTree) -> str:
    """Text of a fitted tree.

    A gate sends a row left where its score is >= 0. Scores are in original units, largest terms first (by
    the effect of the feature's whole training range); a category counts 1 where it applies.
    """
    module, table = estimator.module_, estimator.node_table_
    head = f"depth {module.topology.depth}, {module.family.name} leaves"
    lines = [f"Soft survival tree: {head}, {table['rows'].iloc[0]} rows, {table['events'].iloc[0]} events"]
    lines.append(as_text(estimator, _TERMS))
    leaves = table.loc[list(module.topology.leaves)].copy()
    for k, name in enumerate(module.family.shape_names):
        leaves.insert(2 + k, name, [float(module.leaf(n).shape.detach()[k]) for n in module.topology.leaves])
    leaves.insert(0, "leaf", range(len(leaves)))
    text = leaves.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="-")
    constants = module.family.describe(float(module.log_time_scale.exp()))
    where = "; shapes are those at x = 0" if module.family.ancillary == "linear" else ""
    lines += ["", f"Leaves; S(t) is the mean predicted survival of their rows{where}", text]
    return "\n".join([*lines, constants] if constants else lines)
