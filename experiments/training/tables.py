"""The tables of README.md from starts.csv, and scores.csv, one row a cell.

.venv/bin/python experiments/training/tables.py
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

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
    """One row a data set, depth and leaf, one column a trainer; only where all trainers are there."""
    chosen = scores[scores["trainer"].isin(trainers)]
    table = chosen.pivot(index=["depth", "leaf", "dataset", "fold"], columns="trainer", values=value)
    return table[trainers].dropna()


def count_best(table: pd.DataFrame, lowest: bool) -> pd.Series:
    """In how many rows each trainer is the best, or within the tie of it."""
    best = table.min(axis=1) if lowest else table.max(axis=1)
    return (table.sub(best, axis=0).abs() <= TIE).sum()


def compare(scores: pd.DataFrame, value: str, lowest: bool) -> pd.DataFrame:
    """For each depth and leaf: in how many data sets a trainer is best, its mean rank and median gap."""
    table, rows = wide(scores, value, TRAINERS), {}
    for key, part in table.groupby(["depth", "leaf"]):
        best, ranks = count_best(part, lowest), part.rank(axis=1, ascending=lowest).mean()
        gaps = part.sub(part["nodec"], axis=0).median()
        cells = {name: f"{best[name]} ({ranks[name]:.1f}, {gaps[name]:+.4f})" for name in TRAINERS}
        rows[key] = {"data sets": len(part), **cells}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["depth", "leaf"])


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
        print(f"\n## {value}: best in (mean rank, median gap to nodec)\n")
        print(markdown(compare(scores, value, lowest)))
    print("\n## leaves in use\n")
    print(markdown(wide(scores, "leaves_in_use", ["nodec", "nodec, no reassignment"]), digits=2))
    slsqp = scores[scores["trainer"].isin(["nodec", "nodec, SLSQP"])]
    both = slsqp.groupby(["dataset", "depth", "leaf"])["trainer"].transform("nunique") == 2
    print("\n## SLSQP\n")
    print(markdown(slsqp[both].sort_values(["dataset", "depth", "leaf"]).set_index("dataset")))
    limits = scores[(scores["depth"] == 2) & scores["trainer"].str.contains("iterations|^nodec$")]
    limits = limits[limits["dataset"].isin(["gbsg2", "veterans"])]
    print("\n## limits\n")
    print(markdown(limits.sort_values(["dataset", "leaf"]).set_index("dataset")))


if __name__ == "__main__":
    main()
