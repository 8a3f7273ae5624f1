"""Tables of records, and the progress bar that shows them."""

import numpy as np
import pytest

from sstorch.monitoring import History, ProgressBar
from sstorch.nn import SoftTree


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
