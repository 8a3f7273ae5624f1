"""The part of the ``sstorch`` command that carries out a study."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from sstorch.config import Config, DatasetConfig, StudyConfig
from sstorch.data.wording import nearest_text
from sstorch.evaluation import ResultStore, StudyModel, baseline_models, soft_search_models, soft_tree_models
from sstorch.evaluation.engines import make_engine
from sstorch.evaluation.study import Outcome, Task, plan, run
from sstorch.exceptions import ConfigError
from sstorch.whole_file import write_whole

# What is told of every task, and of every model at the end.
_TOLD = {"c_harrell": "C", "ibs_graf": "IBS"}


def run_study(config: Config, study: StudyConfig, config_text: str) -> int:
    """Carry out a study, or what is left of it.

    Args:
        config: the whole configuration.
        study: its study.
        config_text: its resolved YAML.

    Returns:
        How many tasks failed.

    Raises:
        SstorchError: something cannot be used; raised before any work.
        OSError: results cannot be written.
    """
    if config.fairness.sensitive is not None:
        raise ConfigError("a study has no sensitive groups: leave fairness.sensitive out")
    sources = [config.dataset] if study.datasets is None else [DatasetConfig(name) for name in study.datasets]
    store, models = ResultStore(study.folder), study_models(config, study)
    engine = make_engine(study.engine, study.n_jobs, config.device.name, study.address)
    begin = time.perf_counter()
    tasks = plan(sources, models, config.cv.n_folds, config.cv.seed, store)
    write_whole(store.path / "config.yaml", config_text.encode())
    left = [task for task in tasks if not store.holds(task.key)]
    print(f"study    {len(sources)} data sets x {len(models)} models on {config.cv.n_folds} folds, {engine}")
    print(f"tasks    {len(tasks)}, of which {len(tasks) - len(left)} are in {store.path}", flush=True)
    done = 0

    def tell(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        text = f"[{done}/{len(left)}] {outcome.task.key}: "
        if outcome.failure is not None:
            print(
                f"{text}FAILED, {outcome.failure.error}\n{outcome.failure.traceback}",
                file=sys.stderr,
                flush=True,
            )
            return
        print(f"{text}{_scores_text(outcome)} in {outcome.seconds:.1f} s", flush=True)

    failed = run(tasks, store, engine, tell)
    if len(failed) < len(tasks):
        print(f"\n{_averages(store, tasks)}\n")
    for outcome in failed:
        print(f"failed   {outcome.task.key}: {outcome.failure.error if outcome.failure else ''}")
    seconds = time.perf_counter() - begin
    state = (
        f"{len(failed)} of {len(tasks)} tasks failed; run it again to try them again" if failed else "done"
    )
    print(f"{state}: {len(tasks) - len(failed)} tasks are in {store.path}; {seconds:.0f} s")
    return len(failed)


def study_models(config: Config, study: StudyConfig) -> list[StudyModel]:
    """The models of a study, in the order of its configuration.

    Raises:
        ConfigError: there is no such model, parameter or value.
    """
    known = [*study.soft_trees, *study.searches, *study.baselines]
    wanted = known if study.models is None else study.models
    for name in wanted:
        if name not in known:
            raise ConfigError(
                f"study.models: no model {name!r} in {', '.join(known)}.{nearest_text(name, known)}"
            )
    trees = {name: entry for name, entry in study.soft_trees.items() if name in wanted}
    baselines = {name: entry for name, entry in study.baselines.items() if name in wanted}
    searches = {name: entry for name, entry in study.searches.items() if name in wanted}
    soft = soft_tree_models(config.estimator(), trees) + soft_search_models(config.estimator(), searches)
    return soft + baseline_models(baselines, config.seed)


def _scores_text(outcome: Outcome) -> str:
    assert outcome.rows is not None
    test = outcome.rows[outcome.rows["part"] == "test"].groupby("metric")["value"].mean()
    return ", ".join(f"{name} {test[metric]:.3f}" for metric, name in _TOLD.items())


def _averages(store: ResultStore, tasks: Sequence[Task]) -> str:
    """Means on test folds by model, over the data sets that all of these models have."""
    table, asked = store.table(), {task.key.config for task in tasks}
    own = table[table["config"].isin(asked) & (table["part"] == "test") & table["metric"].isin(_TOLD)]
    depth = own["depth"].map(lambda depth: f", depth {depth:.0f}", na_action="ignore").fillna("")
    own = own.assign(model=own["model"] + depth.astype("string"))
    cells = own.groupby(["model", "dataset", "metric"])["value"].mean().unstack(["metric", "dataset"])
    whole = cells.dropna(axis=1)
    if whole.empty:
        return "no data set has results of every model"
    count = whole.columns.get_level_values("dataset").nunique()
    means = whole.T.groupby("metric").mean().T[list(_TOLD)].rename(columns=_TOLD)
    return f"Test folds, mean over {count} data sets\n{means.round(4).to_string()}"
