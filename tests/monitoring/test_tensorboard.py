"""Tables of records, the progress bar, and TensorBoard files, read back by TensorBoard's own reader."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sstorch import Penalties, PrognosticTree, SoftSurvivalTree, SurvivalData, SurvivalRegression
from sstorch.exceptions import ConfigError
from sstorch.monitoring import Callback, History, ProgressBar, TensorBoard
from sstorch.nn import SoftTree
from sstorch.objective import TrainingObjective
from sstorch.optim import Joint, Nodec
from tests.batches import random_sample, random_tree

OBJECTIVE = TrainingObjective(1e-3, 1e-3)


def _read(folder: Path) -> dict[str, pd.Series]:
    """Scalars of a folder by tag, each by pass."""
    board = EventAccumulator(str(folder)).Reload()
    scalars = {tag: board.Scalars(tag) for tag in board.Tags()["scalars"]}
    # The reader keeps the names of tags whose values a later writer hides.
    return {tag: pd.Series({e.step: e.value for e in events}) for tag, events in scalars.items() if events}


class _Points(Callback):
    """The trees as they stand after every pass."""

    def __init__(self) -> None:
        self.trees: list[SoftTree] = []

    def on_train_begin(self, tree: SoftTree, macro_iterations: int) -> None:
        self.batch = tree

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        self.trees.append(self.batch.select(torch.arange(self.batch.n_problems)))


@pytest.mark.parametrize("engine", ["torch", pytest.param("compiled", marks=pytest.mark.nightly)])
def test_values_of_one_start_are_those_of_the_tree_after_each_pass(engine: str, tmp_path: Path) -> None:
    tree, inside = random_tree(1, 2, "weibull", scale=4.0), random_sample(1, n_rows=120)
    points = _Points()
    trainer = Nodec(macro_iterations=3, engine=engine)  # type: ignore[arg-type]
    history = trainer.train(tree, OBJECTIVE, inside, [points, TensorBoard(tmp_path)])
    found = _read(tmp_path)
    assert not list(tmp_path.glob("m*"))  # of one start there is no range
    assert len(points.trees) == 4
    for number, each in enumerate(points.trees):
        with torch.no_grad():
            energy = OBJECTIVE(each, inside)
            leaf = each.apply_leaf(inside.x)[0] + 4
            norms = [float(each.gate(node).weight.norm()) for node in (1, 2, 3)]
        assert found["train/objective"][number] == pytest.approx(float(energy), rel=1e-5)
        for node, norm in zip((1, 2, 3), norms, strict=True):
            assert found[f"gate/{node}/norm"][number] == pytest.approx(norm, rel=1e-5)
        shares = [float((leaf == node).double().mean()) for node in range(4, 8)]
        for node, share in zip(range(4, 8), shares, strict=True):
            assert found[f"leaf/{node}/share"][number] == pytest.approx(share, abs=1e-6)
        assert found["gate/1/left_share"][number] == pytest.approx(shares[0] + shares[1], abs=1e-6)
        if shares[2] + shares[3]:
            right = found["gate/3/left_share"][number]
            assert right == pytest.approx(shares[2] / (shares[2] + shares[3]), abs=1e-6)
        else:
            assert number not in found["gate/3/left_share"]
    assert found["train/best_objective"].is_monotonic_decreasing
    passes = history.macro_iterations
    np.testing.assert_allclose(found["train/gradient_norm"], passes["gradient_norm"], rtol=1e-5)
    for (node, step), rows in history.steps.groupby(["node", "step"]):
        own = found[f"node/{node}/{step}/{'log_loss' if step == 'WLR' else 'objective'}"]
        expected = rows.groupby("macro_iteration")["objective_after"].last()
        assert own.index.tolist() == expected.index.tolist()
        np.testing.assert_allclose(own, expected, rtol=1e-5)
    assert "WLR" in set(history.steps["step"])
    assert not [tag for tag in found if "WLR" in tag and not tag.endswith("log_loss")]


def test_starts_that_stop_count_with_their_last_value(tmp_path: Path) -> None:
    n, runs = 8, ("first", "second")
    tree, sample = random_tree(n, 1, "weibull"), random_sample(n, n_splits=2, n_rows=120)
    trainer = Nodec(macro_iterations=8, patience=2)
    history = trainer.train(tree, OBJECTIVE, sample, [TensorBoard(tmp_path, runs)])
    passes = history.macro_iterations.set_index(["macro_iteration", "problem"])["objective"].unstack()
    assert passes.isna().any(axis=None)  # some have stopped
    stopped = passes.ffill()
    for number, run in enumerate(runs):
        own = stopped[range(4 * number, 4 * number + 4)]
        last = passes[own.columns].dropna(how="all").index[-1]
        for folder, curve in (("", own.median(axis=1)), ("min", own.min(axis=1)), ("max", own.max(axis=1))):
            found = _read(tmp_path / run / folder)["train/objective"]
            assert found.index[-1] == last
            np.testing.assert_allclose(found, curve.loc[:last], rtol=1e-6)
    with pytest.raises(ConfigError, match="`runs` must name the splits of 8 trees, got 3 names"):
        trainer.train(tree, OBJECTIVE, sample, [TensorBoard(tmp_path, "abc")])


def test_estimators_call_their_callbacks(
    small_data: SurvivalData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files of one second are read in the order of their names, which end in this number.
    monkeypatch.setattr("tensorboard.summary.writer.event_file_writer._global_uid._value", 1000)
    data = small_data.frame, (small_data.time, small_data.event)
    board = TensorBoard(tmp_path / "soft")
    tree = SoftSurvivalTree(depth=1, trainer=Nodec(macro_iterations=2), n_starts=3, init="random")
    plain = SoftSurvivalTree(**tree.get_params(deep=False)).fit(*data)
    tree.fit(*data, callbacks=[board])
    assert tree.objective_ == plain.objective_
    found = _read(tmp_path / "soft" / "min")["train/best_objective"]
    assert found.iloc[-1] <= tree.history_.macro_iterations["best_objective"].min() + 1e-6
    first = _read(tmp_path / "soft")
    tree.fit(*data, callbacks=[board])  # a second training, which does not overwrite the first
    pd.testing.assert_series_equal(_read(tmp_path / "soft")["gate/1/norm"], first["gate/1/norm"])
    assert _read(tmp_path / "soft" / "training-2").keys() == first.keys()
    tree.set_params(trainer=Joint()).fit(*data, callbacks=[TensorBoard(tmp_path / "soft")])
    again = _read(tmp_path / "soft")  # another object hides what was there
    assert "node/1/JOINT/objective" in again
    assert not {tag for tag in again if "/LN/" in tag}

    regression = SurvivalRegression("weibull", penalties=Penalties(ridge=1e-3))
    regression.fit(*data, callbacks=[TensorBoard(tmp_path / "regression")])
    found = _read(tmp_path / "regression")["node/1/LN/objective"]
    assert found[1] == pytest.approx(regression.objective_, rel=1e-6)
    SurvivalRegression("weibull").fit(*data, callbacks=[TensorBoard(tmp_path / "estimated")])
    assert len(_read(tmp_path / "estimated")["regression/evidence"]) > 1


@pytest.mark.parametrize("callbacks", [TensorBoard("runs"), ["runs"], None])
def test_callbacks_that_are_none_raise(callbacks: object, small_data: SurvivalData) -> None:
    for model in (SoftSurvivalTree(), PrognosticTree()):
        with pytest.raises(ConfigError, match=r"`callbacks` must be a list of sstorch.monitoring.Callback"):
            model.fit(small_data.frame, (small_data.time, small_data.event), callbacks=callbacks)  # type: ignore[arg-type]


@pytest.fixture
def history() -> History:
    history = History()
    energy = {"problem": np.arange(3), "gradient_norm": 1e-3}
    for iteration in (1, 2):
        for node, step in ((1, "BN"), (2, "LN")):
            history.add_steps(
                **energy, macro_iteration=iteration, node=node, step=step, objective_before=[3.0, 2.0, 1.0],
                objective_after=[2.0, 1.0, 0.5], evaluations=[4, 5, 6], rows=10,
                status="CONVERGED", restarted=False,
            )  # fmt: skip
        history.add_macro_iteration(
            **energy, macro_iteration=iteration, objective=[2.0, 1.0, 0.5], best_objective=[2.0, 1.0, 0.5],
            mass_2=[0.1, 0.2, 0.3],
        )  # fmt: skip
    return history


def test_tables_grow_and_scalars_are_repeated(history: History) -> None:
    assert (history.steps["rows"] == 10).all()
    assert list(history.steps["evaluations"]) == [4, 5, 6] * 4
    assert list(history.macro_iterations["mass_2"]) == [0.1, 0.2, 0.3] * 2
    assert len(history.last_macro_iteration()) == 3
    assert len(History().steps) == 0
    own = history.of_problem(2)
    assert list(own.steps["objective_after"]) == [0.5] * 4
    assert set(own.macro_iterations["problem"]) == {0}
    assert history.until(1)._steps == history._steps[:2]
    assert len(history.until(1).macro_iterations) == 3
    assert len(history.until(0).macro_iterations) == 0
    with pytest.raises(KeyError, match="node"):
        History().add_steps(problem=0, macro_iteration=1)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress(
    history: History, terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    bar = ProgressBar()
    bar.on_train_begin(SoftTree(2, 1, batch_shape=(3,)), 5)
    for iteration in range(3):
        bar.on_macro_iteration(iteration, history)
    bar.on_train_end(history)
    lines = capsys.readouterr().err.split("\r" if terminal else "\n")
    assert lines[2:] == ["pass 2/5 of 3 trees: objective 1.1667, 3 training", "\n" if terminal else ""]
