"""What starts.csv says: scores.csv, one row a cell, and tables.md.

.venv/bin/python experiments/training/tables.py
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd
from scipy.stats import wilcoxon

HERE = Path(__file__).parent
CELL = ["dataset", "fold", "depth", "leaf", "trainer"]
TRAINERS = ["nodec+joint", "nodec", "joint", "nodec, no reassignment"]
MEASURES = {  # and whether low is good
    "objective_mean": True,
    "objective_median": True,
    "objective_best": True,
    "log_likelihood_of_best": False,
    "log_likelihood_mean": False,
    "log_likelihood_median": False,
    "cpu_seconds": True,
}
# Lower by less than this is no lower: minimisations stop at a tolerance, and the file rounds.
TIE = 1e-5


def summarise(starts: pd.DataFrame) -> pd.DataFrame:
    """One row a cell: objective and held-out log-likelihood over starts, and of the start that is chosen."""

    def one(cell: pd.DataFrame) -> pd.Series:
        chosen = cell.loc[cell["objective"].idxmin()]
        return pd.Series(
            {
                "objective_mean": cell["objective"].mean(),
                "objective_median": cell["objective"].median(),
                "objective_best": chosen["objective"],
                "log_likelihood_of_best": chosen["log_likelihood"],
                "log_likelihood_mean": cell["log_likelihood"].mean(),
                "log_likelihood_median": cell["log_likelihood"].median(),
                "leaves_in_use": cell["leaves_in_use"].mean(),
                "evaluations": cell["evaluations"].mean(),
                "cpu_seconds": cell["cell_cpu_seconds"].iloc[0],
            }
        )

    columns = [name for name in starts.columns if name not in CELL]
    return starts.groupby(CELL, sort=False)[columns].apply(one).reset_index()


def wide(scores: pd.DataFrame, value: str, trainers: list[str]) -> pd.DataFrame:
    """One row a data set, depth and leaf, one column a trainer: means over folds that all trainers have."""
    chosen = scores[scores["trainer"].isin(trainers)]
    index = ["depth", "leaf", "dataset"]
    table = chosen.pivot(index=[*index, "fold"], columns="trainer", values=value)[trainers].dropna()
    means = table.groupby(index).mean()
    means.insert(0, "folds", table.groupby(index).size())
    return means


def count_best(table: pd.DataFrame, lowest: bool) -> pd.Series:
    """In how many rows each trainer is the best, or within the tie of it."""
    best = table.min(axis=1) if lowest else table.max(axis=1)
    return (table.sub(best, axis=0).abs() <= TIE).sum()


def compare(scores: pd.DataFrame, value: str, lowest: bool) -> pd.DataFrame:
    """By depth and over all, in how many settings a trainer is best, and its mean rank."""
    table, rows = wide(scores, value, TRAINERS).drop(columns="folds"), {}
    parts = dict(tuple(table.groupby("depth")))
    for key, part in [*parts.items(), ("all", table)]:
        best, ranks = count_best(part, lowest), part.rank(axis=1, ascending=lowest).mean()
        rows[key] = {
            "settings": len(part),
            **{name: f"{best[name]} ({ranks[name]:.2f})" for name in TRAINERS},
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("depth")


def pairs(scores: pd.DataFrame) -> pd.DataFrame:
    """Trainers two by two over all settings: in how many the first is better or worse, and the median gap."""
    rows = []
    for value, lowest in MEASURES.items():
        table = wide(scores, value, TRAINERS)
        for first, second in itertools.combinations(TRAINERS, 2):
            gap = table[first] - table[second]
            low, high = int((gap < -TIE).sum()), int((gap > TIE).sum())
            better, worse = (low, high) if lowest else (high, low)
            about = {"measure": value, "first": first, "second": second, "better": better, "worse": worse}
            rows.append({**about, "median gap": gap.median(), "p (Wilcoxon)": wilcoxon(gap).pvalue})
    return pd.DataFrame(rows).set_index("measure")


def by_depth(scores: pd.DataFrame, value: str) -> pd.DataFrame:
    """Means over the settings of a depth and leaf."""
    return wide(scores, value, TRAINERS).drop(columns="folds").groupby(["depth", "leaf"]).mean()


def joined(scores: pd.DataFrame, values: list[str], trainers: list[str], digits: int) -> pd.DataFrame:
    """Several measures in one cell, as a / b / c."""
    tables = [wide(scores, value, trainers) for value in values]
    cells = [table[trainers].map(lambda number: _number(number, digits)) for table in tables]
    together = cells[0]
    for more in cells[1:]:
        together = together + " / " + more
    together.insert(0, "folds", tables[0]["folds"])
    return together


def _number(value: float, digits: int) -> str:
    """A number, shortened where it is beyond any scale."""
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.0e}"


def markdown(table: pd.DataFrame, digits: int = 4) -> str:
    """A Markdown table with its index as the first columns."""
    flat = table.reset_index()
    lines = [f"| {' | '.join(map(str, flat.columns))} |", f"|{'---|' * len(flat.columns)}"]
    for row in flat.itertuples(index=False):
        cells = [f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell) for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Write scores.csv and tables.md."""
    scores = summarise(pd.read_csv(HERE / "starts.csv"))
    scores.to_csv(HERE / "scores.csv", index=False, float_format="%.6g")
    objective = ["objective_mean", "objective_median", "objective_best"]
    held_out = ["log_likelihood_mean", "log_likelihood_median", "log_likelihood_of_best"]
    ranks = {value: compare(scores, value, lowest) for value, lowest in MEASURES.items()}
    limits = [f"nodec, {limit} iterations" for limit in (20, 50, 100)]
    limits.insert(1, "nodec")
    solvers = ["nodec", "nodec, SLSQP"]
    parts = {
        "In how many settings a trainer is best (its mean rank)": markdown(
            pd.concat(ranks, names=["measure"])
        ),
        "Trainers two by two": markdown(pairs(scores)),
        "Training objective of each setting, mean / median / best start": markdown(
            joined(scores, objective, TRAINERS, 4)
        ),
        "Held-out log-likelihood of each setting, mean / median start / start of the lowest objective": (
            markdown(joined(scores, held_out, TRAINERS, 3))
        ),
        "Leaves in use, means over settings": markdown(by_depth(scores, "leaves_in_use"), 2),
        "Leaves in use of each setting": markdown(wide(scores, "leaves_in_use", TRAINERS), 2),
        "CPU seconds of 20 starts, means over settings": markdown(by_depth(scores, "cpu_seconds"), 2),
        "SLSQP on the same subproblems: objective": markdown(joined(scores, objective, solvers, 4)),
        "SLSQP: held-out log-likelihood": markdown(joined(scores, held_out, solvers, 3)),
        "SLSQP: evaluations per tree": markdown(wide(scores, "evaluations", solvers), 0),
        "Iterations a step: objective (nodec: 30)": markdown(joined(scores, objective, limits, 4)),
        "Iterations a step: held-out log-likelihood": markdown(joined(scores, held_out, limits, 3)),
        "Iterations a step: evaluations per tree": markdown(wide(scores, "evaluations", limits), 0),
    }
    text = "\n\n".join(f"## {title}\n\n{table}" for title, table in parts.items())
    (HERE / "tables.md").write_text(f"# Tables of the study of trainers\n\n{text}\n")


if __name__ == "__main__":
    main()
