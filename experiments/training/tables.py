"""The tables of README.md from starts.csv, and scores.csv, one row a cell.

.venv/bin/python experiments/training/tables.py
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd
from scipy.stats import wilcoxon

HERE = Path(__file__).parent
CELL = ["dataset", "fold", "depth", "leaf", "trainer"]
TRAINERS = ["nodec+joint", "nodec", "joint", "adam", "nodec, no reassignment"]
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
    """Trainers two by two over all settings: in how many the first is better, or worse, and the median gap."""
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


def side_by_side(scores: pd.DataFrame, trainers: list[str]) -> pd.DataFrame:
    """Objective and held-out likelihood of a few trainers: mean / median / best start."""

    def joined(names: tuple[str, str, str], digits: int) -> pd.DataFrame:
        tables = [wide(scores, name, trainers)[trainers].map(f"{{:.{digits}f}}".format) for name in names]
        return tables[0] + " / " + tables[1] + " / " + tables[2]

    parts = {
        "objective": joined(("objective_mean", "objective_median", "objective_best"), 4),
        "held out": joined(("log_likelihood_mean", "log_likelihood_median", "log_likelihood_of_best"), 3),
        "evaluations": wide(scores, "evaluations", trainers)[trainers].map("{:.0f}".format),
    }
    return pd.concat(parts, names=["measure"]).reorder_levels([3, 1, 2, 0]).sort_index(sort_remaining=False)


def markdown(table: pd.DataFrame, digits: int = 4) -> str:
    """A Markdown table with its index as the first columns."""
    flat = table.reset_index()
    lines = [f"| {' | '.join(map(str, flat.columns))} |", f"|{'---|' * len(flat.columns)}"]
    for row in flat.itertuples(index=False):
        cells = [f"{cell:.{digits}f}" if isinstance(cell, float) else str(cell) for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Write scores.csv and print the tables."""
    scores = summarise(pd.read_csv(HERE / "starts.csv"))
    scores.to_csv(HERE / "scores.csv", index=False, float_format="%.6g")
    for value in MEASURES:
        print(f"\n## {value}\n\n{markdown(wide(scores, value, TRAINERS))}")
    for value, lowest in MEASURES.items():
        print(f"\n## {value}: best in (mean rank)\n")
        print(markdown(compare(scores, value, lowest)))
    print(f"\n## two by two\n\n{markdown(pairs(scores))}")
    for value in ("leaves_in_use", "cpu_seconds"):
        print(f"\n## {value}\n\n{markdown(by_depth(scores, value), digits=2)}")
    print("\n## SLSQP\n")
    print(markdown(side_by_side(scores, ["nodec", "nodec, SLSQP"])))
    print("\n## limits\n")
    limits = [f"nodec, {limit} iterations" for limit in (20, 50, 100)]
    print(markdown(side_by_side(scores, [limits[0], "nodec", *limits[1:]])))


if __name__ == "__main__":
    main()
