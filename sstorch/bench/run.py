"""A run: cross-validation of one model, a model of all rows, and what is printed and written of them."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import pandas as pd
import torch

from sstorch.bench.baselines import make_baseline
from sstorch.bench.config import Config, build
from sstorch.bench.cross_validation import (
    CrossValidation,
    cross_validate,
    data_checksum,
    held_out_score,
    make_folds,
    split_names,
)
from sstorch.bench.models import Fit, SoftTreeModel, StudyModel, as_model, models_of
from sstorch.bench.run_folder import RunFolder, same_run, versions
from sstorch.bench.scores import LIKELIHOOD, printed, score_fits, scores_of, wide
from sstorch.checks import counted
from sstorch.data import Schema, SurvivalData
from sstorch.data.folds import Fold, split
from sstorch.exceptions import ConfigError, DataError, SstorchError, TrainingError, warn
from sstorch.metrics.registry import names_of
from sstorch.monitoring import Callback, ProgressBar, TensorBoard
from sstorch.optim.run import Checkpoint, kept, opened
from sstorch.threads import FEW, listening, report

# Of the scores of a study those that describe one run best, the likelihood last.
SCORES = (*names_of("event", "peers"), LIKELIHOOD)
TREE, KAPLAN_MEIER, COX = "tree", "Kaplan-Meier", "Cox"
AALEN_JOHANSEN, CAUSE_COX = "Aalen-Johansen", "cause-specific Cox"  # of competing causes
# Rows times features above which dense columns take minutes and gigabytes: there is no Cox regression then.
MOST_NUMBERS = 20_000_000
# Seconds between two lines of progress.
_EVERY = 5.0


def run(config: Config, config_text: str, folder: RunFolder) -> float:
    """Carry out a run, or continue it, unless the folder holds it, completed; the mean held-out score."""
    shown = time.monotonic()

    def show(phase: str, done: int, total: int) -> None:
        nonlocal shown
        if phase != "training" and time.monotonic() - shown > _EVERY:
            shown = time.monotonic()
            print(f"{phase}: {100 * done / max(total, 1):.0f} % done", file=sys.stderr, flush=True)

    with listening(show) if config.logger.progress else nullcontext():
        return _run(config, config_text, folder)


def _run(config: Config, config_text: str, folder: RunFolder) -> float:
    cv, model = config.cv, as_model("model", build(config.model, "model"), "model")
    if config.threads is not None and config.threads < 1:
        raise ConfigError(f"`threads` must be at least 1 or null, got {config.threads}")
    callbacks = [_callback(node, f"callbacks.{name}") for name, node in (config.callbacks or {}).items()]
    report("reading", 0, 1)
    data = config.dataset.load()
    data.refuse_intervals("a run")
    model.check_data(data)
    peers = _peers(config, model, data) if cv.peers else []
    checksum = data_checksum(data)
    if folder.is_completed(config_text, checksum):
        print(f"done: {folder.path} contains this run, already completed; its files stay as they are")
        return held_out_score(pd.read_csv(folder.path / "scores.csv"), cv.score)
    make_folds(data, cv.n_folds, cv.seed)
    data.warn_of_few_events()
    n_trees = (cv.n_folds + 1) * model.n_starts
    few = n_trees * 2 ** (model.depth or 0) * len(data) < FEW
    if config.threads is not None or few:
        torch.set_num_threads(config.threads or 1)
    print(f"data     {config.dataset.name}: {data.describe()}")
    if data.groups is not None:
        sizes = zip(data.groups.labels, data.groups.counts, strict=True)
        print(f"groups   {data.groups.name}: " + ", ".join(f"{count} {label}" for label, count in sizes))
    print(f"model    {' '.join(repr(model.estimator).split())}")
    trees = f"({cv.n_folds} folds + all rows) x {counted(model.n_starts, 'start')}, {config.device}"
    print(f"trees    {n_trees}: {trees}", flush=True)
    identity = same_run(config_text), checksum, getattr(data.groups, "codes", None), versions()
    with opened(folder.checkpoint, run=identity) as checkpoint:
        if folder.begin(config_text):
            print(f"resume   continues from {folder.checkpoint}", flush=True)
        board = None
        if config.logger.tensorboard:
            board = TensorBoard(folder.tensorboard, split_names(cv.n_folds))
        # Causes are trained one after the other, and their records would overwrite each other.
        callbacks += [] if board is None or data.causes is not None else [board]
        callbacks += [ProgressBar()] if config.logger.progress else []
        begin = time.perf_counter()
        try:
            result = cross_validate(model.estimator, data, cv.n_folds, cv.seed, callbacks, checkpoint)
            seconds = time.perf_counter() - begin
            compared = score_run(result, data, checkpoint, peers) if cv.peers else None
            report("writing", 0, 1)
            figure = folder.write_results(result, data, compared)
            if board is not None:
                tests = result.scores[result.scores["part"] == "test"].groupby("fold")
                for fold, means in tests[result.score_names].mean().iterrows():
                    for score, value in means.dropna().items():
                        board.writer(f"fold-{fold}").add_scalar(f"final/{score}", value)
                if figure is not None:
                    board.writer("all-rows").add_figure("groups", figure, close=False)
        finally:
            if board is not None:
                board.close()
        facts = {"seconds": round(seconds, 2), "trees": n_trees, "data": checksum}
        folder.write_status("completed", **facts, versions=versions())
        folder.checkpoint.unlink(missing_ok=True)
    print(f"\n{_texts(result, compared, bool(model.depth))}\n")
    if board is not None:
        print(f"training curves: tensorboard --logdir {shlex.quote(str(folder.tensorboard))}")
    if isinstance(model, SoftTreeModel):
        print(f"report: sstorch-report {shlex.quote(str(folder.path))}")
    print(f"done: {n_trees} trees trained and scored in {seconds:.1f} s; results in {folder.path}")
    return held_out_score(result.scores, cv.score)


def _peers(config: Config, model: StudyModel, data: SurvivalData) -> list[StudyModel]:
    """The estimators that are scored on the folds of a run, but for soft ones of its own class."""
    peers = []
    for name, node in (config.peers or {}).items():
        try:
            for peer in models_of(name, node, config.seed, f"peers.{name}"):
                if not isinstance(peer, SoftTreeModel) or type(peer.estimator) is not type(model.estimator):
                    peer.check_data(data)
                    peers.append(peer)
        except SstorchError as error:
            raise ConfigError(f"peers.{name}: {error}; leave it out with ~peers.{name}") from error
    return peers


def _callback(node: object, where: str) -> Callback:
    made = build(node, where)
    if not isinstance(made, Callback):
        raise ConfigError(f"{where} must be a Callback of sstorch.monitoring, got {type(made).__name__}")
    return made


# ---------------------------------------------------------------------- reference models


def score_run(
    result: CrossValidation,
    data: SurvivalData,
    checkpoint: Checkpoint | None = None,
    peers: Sequence[StudyModel] = (),
) -> pd.DataFrame:
    """Scores of Kaplan-Meier, `peers`, Cox and, last, the chosen trees: ``model``, ``fold``, scores."""
    # NaN if not defined; no row of a fold outside which a model cannot be fitted. A checkpoint, held, keeps
    # the scores of each model.
    data, causes = data.counted(), data.causes is not None
    schema, parts = Schema.of(data.frame), split(data, result.folds)
    width = sum(len(schema.categories.get(name, ("",))) for name in schema.columns)
    first = StudyModel(AALEN_JOHANSEN if causes else KAPLAN_MEIER, make_baseline("kaplan_meier"))
    models = [first, *peers]
    if width * len(data) <= MOST_NUMBERS:
        models.append(StudyModel(CAUSE_COX if causes else COX, make_baseline("cox_lifelines")))

    def scored(name: str, fits: Iterable[Fit]) -> list[Any]:
        wanted = {"test": SCORES[:-1]}
        found = score_fits(fits, data, parts, wanted, groups=False, disparities=False)
        return [] if found.empty else wide(found).assign(model=name).to_dict("records")

    def scored_model(model: StudyModel) -> list[Any]:
        with listening(None):
            return scored(model.name, _fits_of(model, parts, schema))

    rows = []
    for number, model in enumerate(models):
        report("reference models", number, len(models))
        part = f"reference models/{model.name}/{model.estimator!r}"
        rows += kept(checkpoint, part, partial(scored_model, model))
    rows += scored(TREE, (Fit(fold, tree) for fold, tree in enumerate(result.trees)))
    return pd.DataFrame(rows, columns=["model", "fold", *scores_of(data, SCORES)])


def _fits_of(model: StudyModel, parts: Sequence[Fold], schema: Schema) -> list[Fit]:
    """The chosen fits of a reference model; a DataWarning names what could not be fitted."""
    # Soft trees of all folds are one batch.
    together, fits = [parts] if isinstance(model, SoftTreeModel) else [[fold] for fold in parts], []
    for folds in together:
        try:
            made = model.fits([fold.train for fold in folds], schema, "cpu")
            fits += [fit._replace(fold=folds[fit.fold].number) for fit in made if fit.chosen]
        except (DataError, TrainingError) as error:
            which = f"fold {folds[0].number}" if len(folds) == 1 else "a fold"
            warn(f"{model.name} could not be fitted outside {which} and is not scored there: {error}")
    return fits


def peer_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean over folds of each score, by model, in the order of the rows, with the number of ``folds``."""
    grouped = scores.groupby("model", sort=False)
    names = [name for name in scores if name not in ("model", "fold")]
    return grouped[names].mean().assign(folds=grouped.size())


def _texts(result: CrossValidation, compared: pd.DataFrame | None, gates: bool) -> str:
    """Tables of scores, of reference models and of the evidence, and the tree of all rows."""
    table = result.table().swaplevel(axis=1)
    means = table["mean"].map("{:.4f} (".format) + table["std"].map("{:.4f})".format)
    body = means.set_axis([f"{part}, {trees}" for part, trees in means.index])
    texts = [f"Scores, mean (standard deviation) over folds\n{body.to_string()}"]
    if compared is not None:  # a dash where a model has no density
        names = {**printed(compared.columns), "log_likelihood": "log-likelihood"}
        shown = peer_table(compared)[list(names)].rename(columns=names).rename_axis(None)
        peers = shown.round(4).to_string(na_rep="-")
        texts.append(f"Compared with reference models on the same test folds\n{peers}")
    if result.choices and gates:
        names = {"chosen": "hazards of", "n_groups": "groups", "gain": "gain"}
        shown = result.evidence()[list(names)].rename(columns=names).rename_axis(None).round(1)
        texts.append(
            f"Evidence of the best groups minus that of the regression, in nats\n{shown.to_string()}"
        )
    return "\n\n".join([*texts, f"The tree trained on all rows\n{result.model.summary(details=True)}"])
