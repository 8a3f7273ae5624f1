"""Gates of several columns, estimated with their leaves: found where they are, absent where they are not."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sstorch import PrognosticTree, SoftSurvivalTree, Surv, inference
from sstorch.exceptions import DataWarning
from sstorch.inference.covariance import FitCovariance
from sstorch.monitoring import TensorBoard
from sstorch.optim.evidence import Estimates
from sstorch.soft.estimation import Estimator
from sstorch.soft.gates import GATE


def drawn(n: int, turn: float, seed: int = 2, causes: bool = False) -> tuple[pd.DataFrame, Surv]:
    """Weibull times; the effect of "a" turns its sign where d + e > 0, if `turn` is not zero."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6))
    risk = 0.5 * x[:, 1] + turn * np.where(x[:, 3] + x[:, 4] > 0, x[:, 0], -x[:, 0])
    rates = [np.exp(risk), *([0.5 * np.exp(-0.5 * risk)] if causes else [])]
    times = np.stack([rng.weibull(1.2, n) * rate ** (-1 / 1.2) for rate in rates])
    censoring, first = rng.uniform(0.5, 4.0, n), times.min(0)
    cause = np.where(first <= censoring, 1 + times.argmin(0), 0)
    frame, time = pd.DataFrame(x, columns=list("abcdef")), np.minimum(first, censoring)
    if causes:
        return frame, Surv(time, cause, causes=["first", "second"])
    return frame, Surv(time, cause > 0)


def weights(tree: SoftSurvivalTree) -> pd.Series:
    """Absolute weights of the root in standard deviations of the columns, which are nearly one."""
    features = tree.preprocessor_.gate_features
    scale = tree.preprocessor_.scale_[: len(features)]  # columns are on [0, 1]
    weight = tree.module_.gate(1).weight.detach().numpy() * scale
    return pd.Series(np.abs(weight), index=[feature.columns[0] for feature in features])


@pytest.fixture(scope="module")
def oblique() -> tuple[pd.DataFrame, Surv, SoftSurvivalTree]:
    frame, y = drawn(500, 1.0)
    return frame, y, SoftSurvivalTree(depth=1).fit(frame, y)


def test_gate_of_two_columns_is_found(oblique: tuple[pd.DataFrame, Surv, SoftSurvivalTree]) -> None:
    frame, y, tree = oblique
    choice = tree.choice_
    assert choice is not None
    assert choice.chosen.startswith("spectral")
    others = [value for name, value in choice.evidence.items() if not name.startswith("spectral")]
    assert choice.evidence[choice.chosen] > max(others) + 20
    assert choice.differences == ("a",)
    largest = weights(tree).nlargest(3)
    assert set(largest.index[:2]) == {"d", "e"}
    assert largest.iloc[1] > 0.85 * largest.iloc[0] > 8 * largest.iloc[2]
    assert "they differ in the effect of a (evidence" in tree.describe()
    side = frame.d + frame.e > 0
    right = ((tree.apply(frame) == tree.apply(frame)[0]) == (side == side[0])).mean()
    assert right > 0.93
    assert tree.score(frame, y) > PrognosticTree(depth=1).fit(frame, y).score(frame, y) + 0.03


def test_groups_below_a_trained_gate_have_the_least_share(
    oblique: tuple[pd.DataFrame, Surv, SoftSurvivalTree],
) -> None:
    frame, y, _ = oblique
    tree = SoftSurvivalTree(min_leaf=0.15).fit(frame, y)
    sizes = np.unique(tree.apply(frame), return_counts=True)[1]
    assert len(sizes) == 4
    assert sizes.min() >= 75


def test_choice_reports_the_variance_of_the_gate(
    oblique: tuple[pd.DataFrame, Surv, SoftSurvivalTree], tmp_path: Path
) -> None:
    frame, _, tree = oblique
    assert tree.choice_ is not None
    assert tree.choice_.penalties.loc[GATE, "coefficients"] == 6
    assert 0 < tree.choice_.penalties.loc[GATE, "edf"] < 6
    tree.save(tmp_path / "tree.sst")
    again = SoftSurvivalTree.load(tmp_path / "tree.sst")
    assert again.choice_ == tree.choice_
    assert (again.apply(frame) == tree.apply(frame)).all()


def test_covariance_of_leaves_includes_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the gate, coefficients would be known more precisely."""
    found, covariance = list[Estimates](), Estimator.covariance

    def noted(self: Estimator) -> FitCovariance:
        found.extend(self._models[-1].estimates.values())
        return covariance(self)

    monkeypatch.setattr(Estimator, "covariance", noted)
    tree = SoftSurvivalTree(depth=1).fit(*drawn(300, 1.2))
    (own,), (joint,) = tree.covariance_.hazards.values(), found
    width = joint.system.factor.shape[-1]
    whole = replace(joint, places=None).quadratic(torch.eye(width).double()[None])[0]
    given = torch.linalg.inv(torch.linalg.inv(whole)[joint.places, joint.places])
    ratio = own.posterior.diagonal() / given.diagonal()
    assert 1 - 1e-6 < ratio.min() < 1.02 < ratio.max()
    assert "odds ratio" in tree.summary()


def test_limits_of_rows_near_the_gate_warn(oblique: tuple[pd.DataFrame, Surv, SoftSurvivalTree]) -> None:
    frame, _, tree = oblique
    probability = tree.predict_leaf_proba(frame).max(1)
    with pytest.warns(DataWarning, match=f"the path of {(probability < 0.9).sum()} of 500 rows"):
        inference.predict(tree, frame, times=[0.5])
    sure = frame[probability > 0.99]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        band = inference.predict(tree, sure, times=[0.5])
    assert (band.lower < band.estimate).all()


def test_gate_that_competing_causes_share_is_found() -> None:
    frame, y = drawn(500, 1.0, seed=1, causes=True)
    tree = SoftSurvivalTree(depth=1).fit(frame, y)
    assert tree.choice_ is not None
    assert tree.choice_.chosen.startswith("spectral")
    assert set(weights(tree).nlargest(2).index) == {"d", "e"}
    assert tuple(tree.choice_.estimations) == ("first", "second")
    incidence = tree.predict_cumulative_incidence(frame, times=[1.0])
    assert incidence.shape == (500, 2, 1)
    assert (incidence.sum(1) < 1).all()


def test_rounds_are_written_for_tensorboard(tmp_path: Path) -> None:
    frame, y = drawn(300, 1.2)
    SoftSurvivalTree(depth=1).fit(frame, y, callbacks=[TensorBoard(tmp_path)])
    board = EventAccumulator(str(tmp_path)).Reload()
    tags = set(board.Tags()["scalars"])
    (trained,) = {tag.split("/")[0] for tag in tags if tag.endswith("leaf/2/loss")}
    assert {f"{trained}/evidence", f"{trained}/variance/gate", f"{trained}/leaf/3/loss"} <= tags
    assert {"regression/evidence", "regression/variance/line", "regression/objective"} <= tags
    gained = [event.value for event in board.Scalars(f"{trained}/evidence")]
    assert gained[-1] > gained[0] + 10
