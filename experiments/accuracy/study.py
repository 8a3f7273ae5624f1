"""How accurate is one readable tree? Nested cross-validation of every candidate of a search, on 15 data sets.

python experiments/accuracy/study.py train [--sets NAME ...] [--repeats 0 ...] [--lever NAME]   # candidates/
python experiments/accuracy/study.py pack                           # candidates/ into candidates.parquet
python experiments/accuracy/study.py report                         # the tables of the README

Baselines of a further repeat R, into baselines/R: sstorch experiment=accuracy cv.seed=R study.folder=FOLDER
'~study.searches.sst_cv' '~study.baselines.sksurv'
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone

from sstorch import PrognosticTreeCV, SoftSurvivalTree, load_dataset, metrics
from sstorch.bench import ResultStore, make_folds
from sstorch.bench.flat import soft_search, soft_tree
from sstorch.data import Fold, Schema, SurvivalData, stratified_folds
from sstorch.optim import Joint
from sstorch.reading import gate_table, importance, simplify
from sstorch.soft.candidates import Candidate
from sstorch.soft.search import SCORINGS, FoldSearch, HeldOutRows

HERE = Path(__file__).parent
# Scores of all candidates: a file for each data set, lever, repeat and fold, and one that has what is packed.
NEW, PACKED = HERE / "candidates", HERE / "candidates.parquet"
TASK = ["data", "lever", "repeat", "fold"]
SETS = ["veterans", "whas500", "uissurv", "gbsg2", "maintenance", "credit", "aids", "aids_death", "churn"]
SETS += ["unempdur", "aids2", "framingham", "dialysis", "flchain", "employee"]
# How the candidates of all searches are trained.
TRAINED: dict[str, object] = {"init": "random", "n_starts": 8, "trainer": "joint", "numeric": "linear"}
TRAINED["depth"] = (0, 1, 2, 3, 4)
# Parameters of the search that one lever changes, beside "search" itself; for the ablation.
LEVERS: dict[str, dict[str, object]] = {
    "search": {},
    "kmeans": {"init": "kmeans"},
    "one_start": {"n_starts": 1},
    "many_starts": {"n_starts": 32},
    "fused": {"fused": 0.1},
    "decomposition": {"trainer": "nodec"},
    "holdout": {"holdout": 0.2},
    "all_starts": {"trainer": Joint()},
}
KEYS = ["depth", "leaf", "ridge", "gate_ridge"]
RULE = "c_harrell"
# A column counts as read if it has at least this share of the effects in the gates or in the leaves.
READ = 0.02
CURVES = tuple(SCORINGS)


class Watched(FoldSearch):
    """The search within the training rows of an outer fold, which is one more split of each of its batches.

    It is told the scores on the inner folds alone; ``rows`` has all scores on all splits.
    """

    def __init__(
        self, search: PrognosticTreeCV, train: SurvivalData, test: SurvivalData, schema: Schema
    ) -> None:
        inner = stratified_folds(train.event, 5, 0)
        super().__init__(soft_tree(**search.shared()), train, inner, schema, RULE)
        self._folds.append(Fold(5, np.zeros(len(train), dtype=bool), train, test))
        self.rows: list[dict[str, object]] = []

    def _scores(self, candidates: Sequence[Candidate]) -> tuple[np.ndarray, np.ndarray, list[list[None]]]:
        found: list[dict[str, object]] = []
        for _, batch in groupby(candidates, lambda own: own.batch):
            found += self._watch(list(batch))
        self.rows += found
        table = pd.DataFrame(found)
        wide = table[table["inner"] < 5].pivot(index="candidate", columns="inner", values=RULE)
        scores = wide.to_numpy()
        seconds = table.groupby("candidate")["seconds"].first().to_numpy()
        trees = [[None]] * len(scores)
        return np.stack([scores, *np.full((2, *scores.shape), np.nan)]), seconds, trees

    def _watch(self, candidates: list[Candidate]) -> list[dict[str, object]]:
        """Scores of the candidates of a batch on all splits, candidate by candidate."""
        begin = time.process_time()
        batch = self.train(candidates)
        seconds = (time.process_time() - begin) / len(candidates)
        rows = []
        for k, fold in enumerate(self._folds):
            rest, train = fold.test, fold.train
            scorer = HeldOutRows(rest, train, batch.preprocessors[k], "hbp")
            for setting, own in enumerate(candidates):
                start = batch.best_start(k, setting)
                tree = batch.tree.select(batch.position(k, start, setting))
                facts = {score: scorer.score(tree, score) for score in CURVES}
                if k == 5:
                    chosen = clone(self._estimator).set_params(**own.parameters)
                    facts |= outer_facts(chosen._adopt(batch, train, k, start, setting), rest, train)
                place = {"candidate": own.place, "inner": k, "seconds": seconds}
                rows.append({key: getattr(own, key) for key in KEYS} | place | facts)
        return rows


def nested(name: str, repeat: int, fold: int, lever: str) -> pd.DataFrame:
    """Inner scores of every candidate, and those of the same candidate trained on all rows of the fold."""
    data = load_dataset(name)
    outer, schema = make_folds(data, 5, repeat), Schema.of(data.frame)
    train, test = data.subset(outer != fold), data.subset(outer == fold)
    search = soft_search(**TRAINED | LEVERS[lever])
    watched = Watched(search, train, test, schema)
    watched.growing(search.candidates(train))
    about = {"data": name, "repeat": repeat, "fold": fold, "lever": lever}
    return pd.DataFrame(watched.rows).drop(columns="candidate").assign(**about)


def outer_facts(tree: SoftSurvivalTree, test: SurvivalData, train: SurvivalData) -> dict[str, float]:
    """The Brier score of the other convention on the test rows, and how much there is to read."""
    times = metrics.evaluation_times(test.time, train.time, "sksurv")
    curves = tree.falling_curves(test.frame, times)
    score = metrics.integrated_brier_score(
        (test.time, test.event), curves, times, train=(train.time, train.event), convention="sksurv"
    )
    rules = simplify(tree, train.frame).table
    left = gate_table(tree)["left"]
    gates = [len(names) for names, share in zip(rules["features"], left, strict=True) if 0 < share < 1]
    read = int((importance(tree) >= READ).any(axis=1).sum())
    used = len(np.unique(tree.apply(train.frame)))
    return {
        "ibs_sksurv": -score,
        "leaves": used,
        "gates": len(gates),
        "gate_features": float(sum(gates)),
        "columns": read,
    }


def train(names: list[str], repeats: list[int], lever: str) -> None:
    NEW.mkdir(exist_ok=True)
    done = packed_tasks()
    for name in names:
        for repeat in repeats:
            for fold in range(5):
                path = NEW / f"{name}_{lever}_{repeat}_{fold}.parquet"
                if path.exists() or path.stem in done:
                    continue
                begin = time.process_time()
                table = nested(name, repeat, fold, lever)
                table.to_parquet(path.with_suffix(".part"))
                path.with_suffix(".part").replace(path)
                print(
                    name,
                    lever,
                    repeat,
                    fold,
                    f"{time.process_time() - begin:.0f} s of the processor",
                    flush=True,
                )


def packed_tasks() -> set[str]:
    """Names of the files whose rows are packed."""
    if not PACKED.exists():
        return set()
    tasks = pd.read_parquet(PACKED, columns=TASK).drop_duplicates()
    return {"_".join(map(str, task)) for task in tasks.itertuples(index=False)}


def candidates() -> pd.DataFrame:
    """Scores of all candidates, packed and new."""
    done = packed_tasks()
    tables = [pd.read_parquet(PACKED)] if done else []
    tables += [pd.read_parquet(path) for path in sorted(NEW.glob("*.parquet")) if path.stem not in done]
    return pd.concat(tables, ignore_index=True)


def pack() -> None:
    """Move the rows of all files into one; they are deleted when it has been read back."""
    files, table, aside = sorted(NEW.glob("*.parquet")), candidates(), PACKED.with_suffix(".part")
    table.to_parquet(aside, index=False, compression="zstd", compression_level=15, write_page_checksum=True)
    pd.testing.assert_frame_equal(pd.read_parquet(aside), table, check_exact=True)
    aside.replace(PACKED)
    done = packed_tasks()
    packed = [path for path in files if path.stem in done]
    for path in packed:
        path.unlink()
    print(f"{len(packed)} files are now in {PACKED}")


def chosen(
    table: pd.DataFrame,
    rule: str = RULE,
    keep: Callable[[pd.DataFrame], pd.Series] | None = None,
    within: float = 0.0,
) -> pd.DataFrame:
    """The outer row of the candidate that the inner folds choose, for each data set, repeat and fold.

    It is the best of the smallest depth that comes within so many standard errors of the best of all.
    """
    rows, keys = [], ["data", "repeat", "fold"]
    for about, own in table.groupby(keys, sort=False):
        kept = own if keep is None else own[keep(own)]
        scores = kept[kept["inner"] < 5].groupby(KEYS, sort=False)[rule]
        means = scores.mean().round(4)
        near = means[means >= means.max() - within * scores.sem()[means.idxmax()]]
        depths = near.index.get_level_values("depth")
        best = near[depths == depths.min()].idxmax()
        outer = kept[kept["inner"] == 5].set_index(KEYS).loc[best]
        rows.append(dict(zip([*keys, *KEYS], [*about, *best], strict=True)) | dict(outer))
    found = pd.DataFrame(rows)
    return found.assign(data=pd.Categorical(found["data"], SETS, ordered=True)).sort_values(keys)


def baselines() -> pd.DataFrame:
    """Test scores of other models on the same folds: of the published study, and of further repeats."""
    folders = {0: HERE.parent / "paper"} | {int(path.name): path for path in (HERE / "baselines").glob("*")}
    tables = [ResultStore(path).table().assign(repeat=repeat) for repeat, path in folders.items()]
    rows = pd.concat(tables)
    rows = rows[(rows["part"] == "test") & rows["chosen"] & rows["metric"].isin(["c_harrell", "ibs_sksurv"])]
    depth = rows["depth"].map(lambda value: "" if pd.isna(value) else f" D{int(value)}")
    return rows.assign(model=rows["model"] + depth)


def against_the_better(name: str, ours: pd.DataFrame, others: pd.DataFrame) -> str:
    """Paired test of the concordance beside the better of Cox and the forest, over folds of all repeats."""
    rivals = others[(others["dataset"] == name) & (others["metric"] == "c_harrell")]
    wide = rivals.pivot_table(index=["repeat", "fold"], columns="model", values="value")[["cox", "rsf"]]
    own = ours[ours["data"] == name].set_index(["repeat", "fold"])["c_harrell"]
    paired = wide.join(own, how="inner").dropna()
    better = paired[["cox", "rsf"]].mean().idxmax()
    n, n_repeats = len(load_dataset(name)), paired.index.get_level_values("repeat").nunique()
    test = metrics.corrected_resampled_t_test(
        paired["c_harrell"], paired[better], n_train=4 * n // 5, n_test=n // 5
    )
    return (
        f"{name:12} {better:4} {n_repeats:2} x 5 folds: {test.difference:+.4f} "
        f"({test.lower:+.4f}, {test.upper:+.4f}), p {test.p_value:.3f}"
    )


def over_repeats(ours: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Means of the tree, Cox and the forest over all folds and repeats that all three have."""
    keys = ["data", "repeat", "fold"]
    rivals = others[others["model"].isin(["cox", "rsf"])].rename(columns={"dataset": "data"})
    wide = rivals.pivot_table(index=keys, columns=["metric", "model"], values="value")
    wide.columns = [" ".join(names) for names in wide.columns]
    tree = ours.astype({"data": str}).set_index(keys)
    tree = tree.assign(ibs_sksurv=-tree["ibs_sksurv"])[["c_harrell", "ibs_sksurv"]].add_suffix(" tree")
    paired = tree.join(wide, how="inner").dropna()
    means = paired.groupby("data").mean().assign(folds=paired.groupby("data").size())
    means = means.reindex([name for name in SETS if name in means.index])[["folds", *sorted(paired.columns)]]
    return pd.concat([means, means.mean().to_frame("mean").T])


def report() -> None:
    table = candidates()
    search = table[table["lever"] == "search"]
    every, others = chosen(search), baselines()
    ours, first = every[every["repeat"] == 0], others[others["repeat"] == 0]
    for metric, sign in (("c_harrell", 1), ("ibs_sksurv", -1)):
        wide = first[(first["metric"] == metric) & first["model"].isin(BASELINES)]
        means = wide.pivot_table(index="dataset", columns="model", values="value", aggfunc="mean")
        means.insert(0, "tree", (ours.groupby("data", observed=True)[metric].mean() * sign))
        means = means.reindex([name for name in SETS if name in means.index])
        print(f"\n{metric}, test folds\n")
        print(pd.concat([means, means.dropna().mean().to_frame("mean").T]).round(4).to_string())
        print(means.notna().sum().to_string())
    print(
        "\nagainst the better of Cox and the forest: difference in C, 95 % interval, p (corrected t test)\n"
    )
    for name in every["data"].unique():
        print(against_the_better(name, every, others))
    print("\nmeans over the folds of all repeats\n")
    repeats = over_repeats(every, others).rename_axis("data")
    repeats.to_csv(HERE / "scores.csv", float_format="%.4f")
    print(repeats.round(4).to_string())
    about = ours.groupby("data", observed=True)
    print("\nwhat was chosen\n")
    print(about.agg({"depth": list, "leaf": list, "ridge": list, "gate_ridge": list}).to_string())
    print(about[["depth", "leaves", "gates", "gate_features", "columns"]].mean().round(2).to_string())
    print(ours[["depth", "leaves", "gates", "gate_features", "columns"]].mean().round(2).to_string())
    print("\nablation: means over data sets of the mean over folds\n")
    for label, rule, keep, within in ABLATION:
        found = (
            chosen(search[search["repeat"] == 0], rule, keep, within)
            .groupby("data", observed=True)[["c_harrell", "ibs_sksurv"]]
            .mean()
        )
        c, ibs = found.mean()
        print(f"{label:60} C {c:.4f}, IBS {-ibs:.4f}, {len(found)} sets")
    for lever, own in table.groupby("lever"):
        if lever == "search":
            continue
        other = chosen(own).groupby("data", observed=True)[["c_harrell", "ibs_sksurv"]].mean()
        same = ours.groupby("data", observed=True)[["c_harrell", "ibs_sksurv"]].mean().loc[other.index]
        print(f"{lever}: {(other - same).round(4).to_string()}")
    seconds = search[(search["inner"] == 5) & (search["repeat"] == 0)].groupby("data")["seconds"].sum()
    print(f"\nseconds of the processor for all: {seconds.sum():.0f}\n{seconds.round().to_string()}")


BASELINES = ["cox", "rsf", "gradient_boosting", "log_logistic_aft", "sst_llog D1", "sst_llog D2", "sksurv D5"]
Keep = Callable[[pd.DataFrame], pd.Series]
# Choices among fewer candidates, or by another score.
ABLATION: list[tuple[str, str, Keep | None, float]] = [
    ("the search", RULE, None, 0),
    ("smallest depth within one standard error", RULE, None, 1),
    ("chosen by likelihood", "log_likelihood", None, 0),
    ("chosen by Brier score", "ibs", None, 0),
    ("one leaf, log-logistic, ridge .001", RULE, lambda own: own.eval(f"{SINGLE} and ridge == 1e-3"), 0),
    ("one leaf, log-logistic", RULE, lambda own: own.eval(SINGLE), 0),
    ("one leaf", RULE, lambda own: own["depth"] == 0, 0),
    ("depth at most 1", RULE, lambda own: own["depth"] <= 1, 0),
    ("depth at most 2", RULE, lambda own: own["depth"] <= 2, 0),
    ("depth at most 3", RULE, lambda own: own["depth"] <= 3, 0),
    ("gate ridge 1e-5 alone", RULE, lambda own: own["gate_ridge"].isin([0.0, 1e-5]), 0),
    ("gate ridge 1e-4 alone", RULE, lambda own: own["gate_ridge"].isin([0.0, 1e-4]), 0),
]
# Where times are grouped there is no log-logistic leaf among the candidates.
SINGLE = "depth == 0 and leaf in ('log_logistic', 'logistic_hazard')"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["train", "pack", "report"])
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--repeats", nargs="*", type=int, default=[0])
    parser.add_argument("--lever", choices=LEVERS, default="search")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "report":
        report()
    elif given.what == "pack":
        pack()
    else:
        train(given.sets, given.repeats, given.lever)
