"""The torch layer as a researcher uses it: loops, estimators, experts, schedules, penalties, an app."""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sstorch import (
    SurvivalData,
    load_dataset,
)
from sstorch.data import Preprocessor, Schema, stratified_folds
from sstorch.nn import (
    HazardHead,
    SoftTree,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def parts() -> tuple[SurvivalData, SurvivalData]:
    """Training and test rows."""
    data = load_dataset("gbsg2")
    fold = stratified_folds(data.event, 5, seed=0)
    return data.subset(fold != 0), data.subset(fold == 0)


@pytest.fixture(scope="module")
def tensors(parts: tuple[SurvivalData, SurvivalData]) -> tuple[Tensor, Tensor, Tensor]:
    """Encoded training rows, times and events."""
    train, _ = parts
    x = Preprocessor(Schema.of(train.frame)).fit(train.frame).transform(train.frame)
    return torch.tensor(x).float(), torch.tensor(train.time), torch.tensor(train.event)


def perceptron() -> nn.Module:
    """Of 12 features."""
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh())


def convolution() -> nn.Module:
    """Of 12 features as images of 3 x 4 pixels."""
    layers = nn.Conv2d(1, 8, 2), nn.Tanh(), nn.Flatten(), nn.Linear(48, 16)
    return nn.Sequential(nn.Unflatten(1, (1, 3, 4)), *layers)


HEADS = {
    "tree": partial(SoftTree, 16, depth=2, family="weibull"),
    "mixture": partial(HazardHead, 16, "log_logistic", n_components=3),
    "spline_ph": partial(HazardHead, 16, "spline_ph"),
}


@pytest.mark.parametrize("body", [perceptron, convolution])
@pytest.mark.parametrize("head", HEADS)
def test_networks_train_in_a_loop_of_torch(
    tensors: tuple[Tensor, Tensor, Tensor], body: Callable[[], nn.Module], head: str
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(body(), HEADS[head]())
    x, time, event = tensors
    net[-1].initialize(time, event)
    before = net(x).nll(time, event).item()
    weight = next(net.parameters())
    first, optimizer = weight.detach().clone(), torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(5):
        for batch, t, e in DataLoader(TensorDataset(x, time, event), batch_size=128, shuffle=True):
            optimizer.zero_grad()
            net(batch).nll(t, e).backward()
            optimizer.step()
    assert net(x).nll(time, event).item() < before - 0.03
    assert (weight - first).abs().max() > 0.01
    with torch.no_grad():
        distribution = net(x)
        curves = distribution.survival(torch.tensor([365.0, 1825.0]))
        assert curves.shape == (len(x), 2)
        assert (curves[:, 1] < curves[:, 0]).all()
        at_median = distribution.survival(distribution.quantile(0.5)[:, None].clamp(max=1e6))
        assert (at_median - 0.5).abs().max() < 1e-3
        lower, upper = time / 2, torch.where(event, time, torch.inf)
        assert distribution.nll(lower=lower, upper=upper).isfinite()
        assert distribution.nll(time, event, entry=time / 2, weight=torch.rand(len(x))).isfinite()


def test_experts_of_a_router_train(tensors: tuple[Tensor, Tensor, Tensor]) -> None:
    torch.manual_seed(0)
    router = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 5), nn.LogSoftmax(-1))
    experts = SoftTree(12, family="weibull", router=router)
    x, time, event = tensors
    experts.initialize(time, event)
    before = experts(x).nll(time, event).item()
    optimizer = torch.optim.Adam(experts.parameters(), 0.02)
    for _ in range(40):
        optimizer.zero_grad()
        experts(x).nll(time, event).backward()
        optimizer.step()
    assert experts(x).n_components == 5
    assert router[0].weight.grad.norm() > 0
    assert experts(x).nll(time, event).item() < before - 0.05


def blocks(language: str) -> list[str]:
    """Blocks of the last section of the page, which has the app."""
    page = (ROOT / "docs" / "torch.md").read_text()
    return re.findall(
        rf"```{language}\n(.*?)```", page[page.index("## A custom Hydra application") :], re.DOTALL
    )


@pytest.mark.nightly
def test_app_of_hydra_runs_as_documented(tmp_path: Path) -> None:
    names = "network.py", "app.py", "config.yaml"
    for name, text in zip(names, blocks("python") + blocks("yaml"), strict=True):
        (tmp_path / name).write_text(text)
    env = {"PATH": "", "PYTHONPATH": str(ROOT), "HOME": str(Path.home()), "OMP_NUM_THREADS": "1"}

    def run(*arguments: str) -> str:
        command = [sys.executable, "app.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert 0.6 < float(run().split()[-1]) < 0.8
    swept = run("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "model.lr=0.003,0.03")
    assert "launching 2 jobs" in swept
    assert (tmp_path / "multirun").exists()
    if importlib.util.find_spec("hydra_plugins.hydra_optuna_sweeper") is not None:
        sweep = next(line for line in blocks("bash")[0].splitlines() if "optuna" in line)
        assert "Best value" in run(*shlex.split(sweep)[2:])
