import numpy as np
import pytest

from sstorch.monitoring import History, ProgressBar
from sstorch.nn import SoftTree


def _history() -> History:
    history = History()
    for iteration in (1, 2):
        for node, step in ((1, "BN"), (2, "LN")):
            history.add_steps(
                problem=np.arange(3), macro_iteration=iteration, node=node, step=step,
                objective_before=[3.0, 2.0, 1.0], objective_after=[2.0, 1.0, 0.5], gradient_norm=1e-6,
                evaluations=[4, 5, 6], rows=10, left_share=0.4, status="CONVERGED", restarted=False,
            )  # fmt: skip
        history.add_macro_iteration(
            problem=np.arange(3), macro_iteration=iteration, objective=[2.0, 1.0, 0.5],
            best_objective=[2.0, 1.0, 0.5], gradient_norm=1e-3,
            mass_2=[0.1, 0.2, 0.3], mass_3=[0.9, 0.8, 0.7],
        )  # fmt: skip
    return history


def test_tables_grow_and_scalars_are_repeated() -> None:
    history = _history()
    assert len(history.steps) == 12
    assert (history.steps["rows"] == 10).all()
    assert list(history.steps["evaluations"][:3]) == [4, 5, 6]
    assert list(history.macro_iterations["mass_3"][:3]) == [0.9, 0.8, 0.7]
    assert set(history.last_steps(2)["macro_iteration"]) == {2}
    assert len(history.last_steps(2)) == 6
    assert len(history.last_macro_iteration()) == 3
    assert len(History().steps) == 0


def test_of_problem_and_missing_columns() -> None:
    own = _history().of_problem(2)
    assert list(own.steps["objective_after"]) == [0.5] * 4
    assert set(own.macro_iterations["problem"]) == {0}
    with pytest.raises(TypeError, match="history record without node"):
        History().add_steps(problem=0, macro_iteration=1)


def test_progress_in_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bar, history = ProgressBar(), _history()
    bar.on_train_begin(SoftTree(2, 1, batch_shape=(3,)), 5)
    bar.on_macro_iteration(2, history)
    bar.on_train_end(history)
    assert capsys.readouterr().err == "pass 2/5 of 3 trees: objective 1.1667, 3 training\n"


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar, history = ProgressBar(), _history()
    bar.on_train_begin(SoftTree(2, 1, batch_shape=(3,)), 5)
    for iteration in range(3):
        bar.on_macro_iteration(iteration, history)
    bar.on_train_end(history)
    err = capsys.readouterr().err
    assert "\r" in err
    assert "2/5" in err


def test_history_until_a_macro_iteration_has_the_earlier_records() -> None:
    history = _history()
    assert history.until(1)._steps == history._steps[:2]
    assert len(history.until(1).macro_iterations) == 3
    assert len(history.until(0)._macro) == 0
