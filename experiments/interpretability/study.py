"""What separates the leaves: curves by leaf and the tables behind them, see README.md here."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from sstorch import GatePenalties, SoftSurvivalTree, SurvivalData, load_dataset, plots
from sstorch.bench import score_tree
from sstorch.data import stratified_folds
from sstorch.optim import Nodec
from sstorch.reading import gate_coefficients

HERE = Path(__file__).parent
DATASETS = (
    *("maintenance", "veterans", "churn"),
    *("aids_death", "aids", "credit", "gbsg2", "uissurv", "whas500"),
)
DEPTHS = (1, 2)
# A weak one, whose trees are drawn, and one that scores better by using fewer leaves.
GATE_RIDGES = (1e-4, 1e-2)


def fitted(train: SurvivalData, depth: int, gate_ridge: float) -> SoftSurvivalTree:
    """The best of five starts by training objective."""
    tree = SoftSurvivalTree(
        depth=depth,
        leaf="log_logistic",
        init="random",
        trainer=Nodec(),
        n_starts=5,
        penalties=GatePenalties(gate_ridge=gate_ridge),
        random_state=0,
    )
    return tree.fit(train.frame, (train.time, train.event))


def scores_of(tree: SoftSurvivalTree, train: SurvivalData, test: SurvivalData) -> dict[str, float]:
    """Concordance and integrated Brier score of test rows, and how the leaves share them."""
    values = score_tree(tree, test, train)
    shares = np.bincount(tree.apply(test.frame), minlength=2**tree.depth) / len(test)
    return {
        "C": values["c_harrell"],
        "IBS": values["ibs_graf"],
        "leaves_used": int((shares > 0).sum()),
        "largest_leaf": float(shares.max()),
    }


def leaf_rows(tree: SoftSurvivalTree, test: SurvivalData) -> list[dict[str, float]]:
    """Rows, events and mean predicted survival at the median test time of each leaf, test rows."""
    middle = float(np.median(test.time))
    frame = pd.DataFrame({"leaf": tree.apply(test.frame), "event": test.event})
    frame["survival"] = tree.predict_survival_function(test.frame, [middle])[:, 0]
    table = frame.groupby("leaf").agg(
        test_rows=("event", "size"), test_events=("event", "sum"), survival=("survival", "mean")
    )
    return [{"time": middle, **row} for row in table.reset_index().to_dict("records")]


def focus(figure: Figure) -> None:
    """Cut off the part of the vertical axis that is below all curves, and back the legends with white."""
    lowest = min(np.min(line.get_ydata()) for ax in figure.axes for line in ax.lines)
    for ax in figure.axes:
        ax.set_ylim(bottom=np.floor(10 * lowest) / 10)
        ax.legend(fontsize=8, framealpha=0.85, edgecolor="none")
    figure.axes[1].set_ylabel("")


def save(figure: Figure, name: str) -> None:
    """Write a PNG with a palette: hundreds of half transparent curves would take half a megabyte."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=80)
    image = Image.open(buffer).convert("RGB")
    image.quantize(256, Image.Quantize.FASTOCTREE).save(HERE / f"{name}.png", optimize=True)


def main() -> None:
    """Train on four of five folds of each data set; write figures, summaries, gates, leaves and scores."""
    scores, gates, leaves, texts = [], [], [], []
    for name in DATASETS:
        data = load_dataset(name)
        folds = stratified_folds(data.event, 5, seed=0)
        train, test = data.subset(folds != 0), data.subset(folds == 0)
        curves = Figure(figsize=(10, 3.6), layout="constrained")
        for ax, depth in zip(curves.subplots(1, 2, sharey=True), DEPTHS, strict=True):
            trees = {ridge: fitted(train, depth, ridge) for ridge in GATE_RIDGES}
            for ridge, tree in trees.items():
                place = {"dataset": name, "depth": depth, "gate_ridge": ridge}
                scores.append({**place, **scores_of(tree, train, test)})
            tree, place = trees[GATE_RIDGES[0]], {"dataset": name, "depth": depth}
            plots.plot_survival_by_leaf(tree, test.frame, ax)
            drawn = scores[-len(trees)]
            ax.set_title(f"{name}, depth {depth}: C {drawn['C']:.3f}, IBS {drawn['IBS']:.4f}", fontsize=10)
            coefficients = gate_coefficients(tree).reset_index()
            gates.append(coefficients.groupby("node").head(6).assign(**place))
            leaves.extend({**place, **row} for row in leaf_rows(tree, test))
            texts.append(f"# {name}, depth {depth}\n\n{tree.summary()}\n")
        focus(curves)
        save(curves, f"{name}_curves")
        diagram = Figure(figsize=(9.2, 5.7))
        plots.plot_soft_tree(tree, test.frame, figure=diagram)  # that of depth 2
        save(diagram, f"{name}_tree")
        print(pd.DataFrame(scores[-4:]).round(4).to_string(index=False, header=False), flush=True)
    for rows, file in ((scores, "scores.csv"), (leaves, "leaves.csv")):
        pd.DataFrame(rows).to_csv(HERE / file, index=False, float_format="%.4f")
    table = pd.concat(gates).set_index(["dataset", "depth", "node"]).reset_index()
    table.to_csv(HERE / "gates.csv", index=False, float_format="%.5g")
    (HERE / "trees.txt").write_text("\n".join(texts))


if __name__ == "__main__":
    main()
