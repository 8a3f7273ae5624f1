"""Honest groups: gates of one half of the subjects, hazards of the other."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import GroupPenalties, Honest, PrognosticTree, PrognosticTreeCV, Surv, SurvivalData, inference
from sstorch.data.folds import folds_of
from sstorch.exceptions import ConfigError, DataError
from sstorch.soft.honest import halves
from sstorch.validation import group_table

TREE = PrognosticTree(depth=1, leaf="weibull", teacher=Honest())


def _frame(n: int = 240) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(size=n), "z": rng.normal(size=n)})
    time = rng.exponential(np.exp(-1.2 * (frame["x"] > 0.3)))
    limit = rng.uniform(0.2, 2, n)
    return frame, np.minimum(time, limit) + 0.01, time <= limit


def test_outcomes_of_the_estimating_half_leave_the_gates_alone() -> None:
    frame, time, event = _frame()
    first = clone(TREE).fit(frame, Surv(time, event))
    own = np.flatnonzero(folds_of(SurvivalData(frame, Surv(time, event)), 2, 0) == 1)
    changed = time.copy()
    changed[own] = np.random.default_rng(0).permutation(time[own][event[own]].repeat(5))[: len(own)]
    second = clone(TREE).fit(frame, Surv(changed, event))
    gates = [tree.module_.gate_parameters() for tree in (first, second)]
    assert torch.equal(gates[0].weight, gates[1].weight)
    assert torch.equal(gates[0].bias, gates[1].bias)
    assert not np.allclose(first.predict(frame), second.predict(frame))


def test_gates_are_those_of_a_tree_of_the_placing_half() -> None:
    frame, time, event = _frame()
    honest = clone(TREE).fit(frame, Surv(time, event))
    placing, estimating = halves(SurvivalData(frame, Surv(time, event)), seed=0)
    plain = clone(TREE).set_params(teacher=None).fit(placing.frame, placing.y)
    groups = pd.crosstab(honest.apply(frame), plain.apply(frame)).to_numpy()
    assert ((groups > 0).sum(0) == 1).all()
    assert honest.gate_subjects_ == len(placing) == 120
    assert honest.node_table_["rows"].iloc[0] == len(estimating) == 120


def test_texts_and_tables_say_which_intervals_they_have(tmp_path: Path) -> None:
    frame, time, event = _frame()
    tree = clone(TREE).fit(frame, Surv(time, event))
    text = "honest: gates from 120 other subjects"
    assert text in tree.summary(details=True)
    assert "which have placed the gates" not in tree.summary(details=True)
    assert text in tree.describe()
    assert inference.groups(tree, frame, times=[1.0]).attrs["intervals"] == text
    usual = clone(TREE).set_params(teacher=None).fit(frame, Surv(time, event))
    assert usual.gate_subjects_ == 0
    text = "which have placed the gates; limits are those of 95 %, given the gates"
    assert text in usual.summary(details=True)
    found = inference.groups(usual, frame, times=[1.0]).attrs["intervals"]
    assert found == "given the gates, which the same rows chose"
    tree.save(tmp_path / "tree")
    loaded = PrognosticTree.load(tmp_path / "tree")
    assert loaded.summary(details=True) == tree.summary(details=True)


@pytest.mark.parametrize("kind", ["entry", "id", "interval", "causes", "weights", "ridge"])
def test_halves_are_of_subjects_balanced_by_event(kind: str) -> None:
    frame, time, event = _frame()
    weight, tree = None, clone(TREE)
    y = Surv(time, event)
    if kind == "entry":
        y = Surv(time + 0.1, event, entry=0.1 * (np.arange(len(time)) % 2))
    elif kind == "id":
        frame = frame.loc[np.repeat(frame.index, 2)].reset_index(drop=True)
        frame.loc[1::2, "z"] += 0.5
        middle = time / 2
        start, end = np.column_stack([0 * time, middle]).ravel(), np.column_stack([middle, time]).ravel()
        event = np.column_stack([np.zeros(len(time), bool), event]).ravel()
        y = Surv(end, event, entry=start, id=np.repeat(np.arange(len(time)), 2))
    elif kind == "interval":
        y = Surv.interval(np.where(event, 0.9 * time, time), np.where(event, 1.1 * time, np.inf))
    elif kind == "causes":
        cause = np.where(event, 1 + np.arange(len(time)) % 2, 0)
        y = Surv(time, cause, causes=("relapse", "death"))
    elif kind == "weights":
        weight = np.random.default_rng(0).uniform(0.5, 2, len(time))
    else:
        tree.set_params(penalties=GroupPenalties(ridge=1e-3))
    tree.fit(frame, y, weight)
    assert tree.gate_subjects_ == 120
    data = SurvivalData(frame, y, sample_weight=weight)
    placing, estimating = halves(data, seed=0)
    if kind == "id":
        assert not set(placing.frame["x"]) & set(estimating.frame["x"])
    counts = [
        np.bincount(each.cause if kind == "causes" else each.event, minlength=2)
        for each in (placing, estimating)
    ]
    assert np.abs(counts[0] - counts[1]).max() <= 1
    assert np.isfinite(tree.predict(frame)).all()


def test_resampled_groups_are_honest() -> None:
    frame, time, event = _frame()
    y = Surv(time, event)
    tree = clone(TREE).fit(frame, y)
    table = group_table(tree, frame, y, horizons=[0.5], n_resamples=5)
    assert np.isfinite(table["S(0.5)", "estimate"]).all()


def test_unsupported_teachers_raise() -> None:
    frame, time, event = _frame()
    with pytest.raises(ConfigError, match="teacher of Honest must be"):
        Honest("forest")
    with pytest.raises(ConfigError, match="search does not support teacher=Honest"):
        PrognosticTreeCV({"honest": TREE}, cv=2).fit(frame, Surv(time, event))


def test_sandwich_names_the_half_that_placed_the_gates() -> None:
    frame, time, event = _frame()
    model = clone(TREE).fit(frame, Surv(time, event))
    with pytest.raises(DataError, match=r"teacher=Honest\(\): 120 subjects placed the gates"):
        inference.with_covariance(model, "sandwich", frame, Surv(time, event))
