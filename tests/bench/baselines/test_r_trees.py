"""Trees of R beside what R itself predicts; skipped where there is no R."""

import subprocess

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter

from sstorch import SurvivalData
from sstorch.bench import make_baseline
from sstorch.bench.baselines import models as r_trees
from sstorch.data import Preprocessor, Schema
from sstorch.exceptions import ConfigError, TrainingError

TIMES = [0.0, 200.0, 400.0, 800.0, 1500.0]
# All rows through pec, with every default of the two packages but the depth.
PROGRAM = """
suppressPackageStartupMessages({library(survival); library(prodlim); library(pec)})
train <- read.csv("train.csv"); test <- read.csv("test.csv")
formula <- reformulate(setdiff(names(train), c("time", "event")), response = quote(Surv(time, event)))
trees <- list(
  rpart = pecRpart(formula, data = train, control = rpart::rpart.control(maxdepth = 3)),
  ctree = pecCtree(formula, data = train, controls = party::ctree_control(maxdepth = 3))
)
for (name in names(trees)) {
  curves <- predictSurvProb(trees[[name]], newdata = test, times = c(0, 200, 400, 800, 1500))
  write.csv(curves, paste0(name, ".csv"), row.names = FALSE)
}
"""


@pytest.fixture(autouse=True)
def _needs_r(request: pytest.FixtureRequest) -> None:
    if "without_r" in request.node.name:
        return
    try:
        make_baseline("rpart").versions()
    except ConfigError as error:
        pytest.skip(str(error))


def test_curves_are_those_of_pec(gbsg2: SurvivalData, tmp_path) -> None:
    train, test = gbsg2.subset(range(500)), gbsg2.subset(range(500, 686))
    preprocessor = Preprocessor(Schema.of(gbsg2.frame)).fit(train.frame)
    for name, rows in {"train": train, "test": test}.items():
        table = pd.DataFrame(preprocessor.transform(rows.frame)).add_prefix("x")
        table.assign(time=rows.time, event=rows.event.astype(int)).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    (tmp_path / "program.R").write_text(PROGRAM)
    subprocess.run(
        ["Rscript", "--vanilla", "program.R"], cwd=tmp_path, check=True, capture_output=True, timeout=120
    )
    for name in ("rpart", "ctree"):
        peer = pd.read_csv(tmp_path / f"{name}.csv").to_numpy()
        assert len(np.unique(peer[:, 3])) >= 3
        fitted = make_baseline(name, depth=3).fit(train.frame, train.y)
        np.testing.assert_allclose(fitted.falling_curves(test.frame, TIMES), peer, atol=1e-9)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["rpart", "ctree"])
def test_a_leaf_has_the_kaplan_meier_curve_of_its_rows(gbsg2: SurvivalData, name: str) -> None:
    fitted = make_baseline(name, depth=2).fit(gbsg2.frame, gbsg2.weighted_y)
    times = np.r_[np.unique(gbsg2.time), 1e5]
    curves = fitted.falling_curves(gbsg2.frame, times)
    leaves, leaf = np.unique(curves, axis=0, return_inverse=True)
    assert 2 <= len(leaves) <= 4
    for number, curve in enumerate(leaves):
        rows = leaf == number
        peer = KaplanMeierFitter().fit(gbsg2.time[rows], gbsg2.event[rows])
        np.testing.assert_allclose(curve, peer.survival_function_at_times(times), atol=1e-9)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["rpart", "ctree"])
def test_a_tree_without_a_split_is_kaplan_meier(name: str) -> None:
    rng = np.random.default_rng(0)
    data = SurvivalData(rng.uniform(size=(15, 1)), (rng.exponential(size=15), np.ones(15, dtype=int)))
    curves = make_baseline(name).fit(data.frame, data.y).falling_curves(data.frame, data.time)
    plain = make_baseline("kaplan_meier").fit(data.frame, data.y).falling_curves(data.frame, data.time)
    np.testing.assert_allclose(curves, plain, atol=1e-9)


@pytest.mark.nightly
def test_versions_and_errors_are_those_of_r() -> None:
    names = {"sstorch", "R", "rpart", "party", "pec", "prodlim", "survival"}
    assert set(make_baseline("ctree").versions()) == names
    with pytest.raises(TrainingError, match=r"Rscript rpart ended with an error: (?s:.*)train.csv"):
        r_trees._run("rpart", "2", "/no/such/folder")


def test_the_remedy_is_said_without_r(gbsg2: SurvivalData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r_trees.shutil, "which", lambda _: None)
    monkeypatch.setattr(r_trees, "_r_found", r_trees._r_found.__wrapped__)
    for name in ("rpart", "ctree"):
        with pytest.raises(ConfigError, match=r"no Rscript; .*apt-get install r-base-core"):
            make_baseline(name).fit(gbsg2.frame, gbsg2.weighted_y)
