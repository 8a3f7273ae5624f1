"""Torch modules as estimators and in loops of torch: training, predictions, files, arrays of any shape."""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from sklearn.base import clone
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sstorch import PrognosticTree, Surv, SurvivalData, TorchSurvival, metrics, validate
from sstorch.data import Preprocessor, Schema
from sstorch.exceptions import ConfigError, DataError, FormatError, TrainingError
from sstorch.monitoring import Callback, History, ProgressBar, TensorBoard
from sstorch.nn import HazardFamily, HazardHead, SoftTree
from tests.histories import halved

ROOT = Path(__file__).parents[2]


def network(in_features: int) -> nn.Module:
    """A small network with a Weibull head."""
    return nn.Sequential(nn.Linear(in_features, 8), nn.Tanh(), HazardHead(8))


@pytest.fixture(scope="module")
def rows() -> tuple[pd.DataFrame, Surv]:
    """Whose risk is a product of two columns, which no regression with straight lines sees."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.uniform(-1, 1, size=(400, 2)), columns=["a", "b"])
    time = rng.exponential(np.exp(-3 * x["a"] * x["b"]))
    return x, Surv(np.minimum(time, 3), time < 3)


def test_network_finds_a_product_and_repeats(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, y = rows
    model = TorchSurvival(network, epochs=40, lr=0.03).fit(x[:300], y[:300])
    assert model.score(x[300:], y[300:]) > 0.62
    again = clone(model).fit(x[:300], y[:300])
    assert again.loss_ == model.loss_
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert clone(model).set_params(random_state=1).fit(x[:300], y[:300]).loss_ != model.loss_


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_module_is_untouched_and_precision_kept(rows: tuple[pd.DataFrame, Surv], dtype: str) -> None:
    x, y = rows
    torch.manual_seed(0)
    module = network(2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = TorchSurvival(module, epochs=2, dtype=dtype).fit(x, y)
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    trained = model.module_[0].weight
    assert trained.dtype == getattr(torch, dtype)
    assert not torch.equal(trained, before["0.weight"].to(trained))
    assert model.predict_survival_function(x[:2], [0.5, 1.0]).dtype == np.dtype(dtype)


def test_pretrained_weights_are_starting_values(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, y = rows
    trained = TorchSurvival(network, epochs=5, holdout=0).fit(x, y)
    more = TorchSurvival(trained.module_, epochs=1, holdout=0, lr=1e-9, weight_decay=0).fit(x, y)
    for name, value in more.module_.state_dict().items():
        torch.testing.assert_close(value, trained.module_.state_dict()[name], rtol=0, atol=1e-6)
    fresh = network(2)
    started = TorchSurvival(fresh, epochs=1, holdout=0, lr=1e-9, weight_decay=0).fit(x, y)
    assert abs(float(started.module_[-1].log_time_scale)) > 0.1  # the unit of time is that of the rows


def test_parameters_of_a_family_are_not_shared_by_fits(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, y = rows

    class Frailty(HazardFamily):
        name, shape_names = "frailty", ()

        def __init__(self) -> None:
            super().__init__()
            self.log_variance = nn.Parameter(torch.zeros(()))

        def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
            variance = self.log_variance.exp()
            return torch.log1p(variance * torch.exp(log_time + linear)) / variance

    family = Frailty()
    model = TorchSurvival(lambda p: HazardHead(p, family), epochs=3).fit(x, y)
    assert family.log_variance.item() == 0
    assert abs(model.module_.family.log_variance.item()) > 1e-3


def test_predictions_are_those_of_the_distribution(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, y = rows
    model = TorchSurvival(network, epochs=3, dtype=torch.float64, batch_size=50).fit(x, y)
    encoded = torch.as_tensor(model.preprocessor_.transform(x))
    with torch.no_grad():
        distribution = model.module_(encoded)
        grid = torch.tensor([[0.2, 1.0, 0.5]], dtype=torch.float64)
        survival = distribution.survival(grid).numpy()
        nll = distribution.nll(torch.tensor(y.time), torch.tensor(y.event))
        median = distribution.quantile(0.5).numpy()
    np.testing.assert_allclose(model.predict_survival_function(x, [0.2, 1.0, 0.5]), survival, rtol=1e-12)
    np.testing.assert_allclose(model.predict_cumulative_incidence(x, [0.2, 1.0, 0.5])[:, 0], 1 - survival)
    np.testing.assert_allclose(model.log_likelihood(x, y), -nll.item(), rtol=1e-12)
    np.testing.assert_allclose(model.predict_quantile(x, extrapolate=True), median, rtol=1e-12)
    hazard = model.predict_cumulative_hazard_function(x, "events")
    np.testing.assert_allclose(model.predict(x), hazard.sum(1), rtol=1e-10)
    area = quad(lambda t: model.predict_survival_function(x[:1], [t])[0, 0], 0, 2)[0]
    np.testing.assert_allclose(model.predict_rmst(x[:1], 2.0), area, rtol=1e-6)
    later = model.predict_survival_function(x, [0.5], after=0.5)[:, 0]
    whole = model.predict_survival_function(x, [0.5, 1.0])
    np.testing.assert_allclose(later, whole[:, 1] / whole[:, 0], rtol=1e-12)


def test_best_epoch_and_callbacks(
    rows: tuple[pd.DataFrame, Surv], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = rows

    class Recorded(Callback):
        epochs: list[int]

        def on_train_begin(self, module: nn.Module, macro_iterations: int) -> None:
            self.epochs = []

        def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
            self.epochs.append(macro_iteration)

    callback = Recorded()
    callbacks = [callback, ProgressBar(), TensorBoard(tmp_path)]
    model = TorchSurvival(network, epochs=30, lr=0.3, callbacks=callbacks).fit(x, y)
    assert callback.epochs == list(range(1, 31))
    assert "pass 30/30 of Sequential" in capsys.readouterr().err
    table = model.history_.macro_iterations
    board = EventAccumulator(str(tmp_path)).Reload()
    for tag in ("objective", "held_out_loss"):
        events = board.Scalars(f"train/{tag}")
        assert [event.step for event in events] == callback.epochs
        np.testing.assert_allclose([event.value for event in events], table[tag], rtol=1e-6)
    with pytest.raises(ConfigError, match="`callbacks` must be a list"):
        TorchSurvival(network, callbacks=callback).fit(x, y)
    assert model.epoch_ == table["macro_iteration"][table["held_out_loss"].argmin()]
    assert model.loss_ == table["held_out_loss"].min() < table["held_out_loss"].iloc[-1]
    last = TorchSurvival(network, epochs=3, holdout=0).fit(x, y)
    assert last.epoch_ == 3
    assert "held_out_loss" not in last.history_.macro_iterations


def test_competing_causes(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, _ = rows
    rng = np.random.default_rng(0)
    first, second = rng.exponential(np.exp(-2 * x["a"])), 2 * rng.exponential(np.exp(-2 * x["b"]))
    time = np.minimum(np.minimum(first, second), 3)
    cause = np.where(time == 3, 0, np.where(first < second, 1, 2))
    y = Surv(time, cause, causes=("relapse", "death"))

    class TwoHeads(nn.Module):
        def __init__(self, in_features: int) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(in_features, 8), nn.Tanh())
            self.heads = nn.ModuleDict({"relapse": HazardHead(8), "death": HazardHead(8, "log_logistic")})

        def forward(self, x: Tensor) -> dict[str, object]:
            z = self.body(x)
            return {name: head(z) for name, head in self.heads.items()}

    model = TorchSurvival(TwoHeads, epochs=20, dtype="float64").fit(x, y)
    times = np.array([0.3, 1.0, 2.0])
    incidence = model.predict_cumulative_incidence(x, times)
    assert incidence.shape == (400, 2, 3)
    total = incidence.sum(1) + model.predict_survival_function(x, times)
    np.testing.assert_allclose(total, 1.0, atol=1e-12)
    with torch.no_grad():
        parts = model.module_(torch.as_tensor(model.preprocessor_.transform(x[:1])))
    relapse, death = parts["relapse"], parts["death"]

    @torch.no_grad()
    def density(t: float) -> float:
        at = torch.tensor([[t]], dtype=torch.float64)
        return float(relapse.hazard(at) * relapse.survival(at) * death.survival(at))

    np.testing.assert_allclose(incidence[0, 0, 1], quad(density, 0, 1.0)[0], rtol=1e-5)
    assert model.score(x, y) > 0.65
    started = TorchSurvival(TwoHeads, epochs=1, lr=1e-9).fit(x, y)
    assert model.log_likelihood(x, y) > started.log_likelihood(x, y)
    report = validate(model, x, y, horizon=1.5, n_resamples=0)
    assert report.to_frame().loc[("death", "auc"), "value"] > 0.6
    with pytest.raises(ConfigError, match="for each cause, relapse, death"):
        TorchSurvival(network, epochs=1).fit(x, y)


def test_entry_subjects_and_intervals(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, y = rows
    options = {"epochs": 3, "holdout": 0, "batch_size": 800, "dtype": "float64"}
    plain = TorchSurvival(network, **options).fit(x, y)
    halves = pd.concat([x, x], ignore_index=True)
    start_stop = halved(y)
    # Two rows of a subject say what one says; the mean is over rows.
    split_model = TorchSurvival(plain.module_, **options).fit(halves, start_stop)
    assert split_model.time_varying_
    whole = Surv(y.time, y.event, entry=0 * y.time, id=np.arange(len(x)))
    expected = split_model.log_likelihood(x, whole)
    assert 2 * split_model.log_likelihood(halves, start_stop) == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ConfigError, match="time-varying"):
        split_model.predict_survival_function(x, [1.0])
    exact = Surv.interval(y.time, np.where(y.event, y.time, np.inf))
    assert TorchSurvival(network, **options).fit(x, exact).loss_ == pytest.approx(plain.loss_, rel=1e-9)
    wide = Surv.interval(0.5 * y.time, np.where(y.event, 1.5 * y.time, np.inf))
    assert TorchSurvival(network, **options).fit(x, wide).log_likelihood(x, wide) > -2


def test_wrapped_module_is_evaluated_without_fit(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, y = rows
    module = network(2)
    time, event = torch.tensor(y.time), torch.tensor(y.event)
    module[-1].initialize(time, event)
    optimizer = torch.optim.Adam(module.parameters(), 0.03)
    inputs = torch.as_tensor(x.to_numpy(), dtype=torch.float32)
    for _ in range(100):
        optimizer.zero_grad()
        module(inputs).nll(time, event).backward()
        optimizer.step()
    model = TorchSurvival.wrap(module)
    assert module.training
    assert model.score(x, y) > 0.6
    table = metrics.evaluate(model, (x, y), (x.to_numpy(), y))
    assert table.loc[["c_harrell", "negative_log_likelihood"], "value"].notna().all()
    assert "auc" in validate(model, inputs, y, horizon=1.0, n_resamples=0).to_frame().index
    assert set(PrognosticTree(teacher=model, depth=1).fit(x, y).apply(x)) == {1, 2}
    with pytest.raises(DataError, match=r"wrap\(module, y\)"):
        model.predict(x)
    np.testing.assert_allclose(
        TorchSurvival.wrap(module, y).predict(x),
        model.predict_cumulative_hazard_function(x, np.unique(y.time[y.event])).sum(1),
        rtol=1e-5,
    )


def test_save_and_load(rows: tuple[pd.DataFrame, Surv], tmp_path: Path) -> None:
    x, y = rows
    frame = x.assign(kind=np.where(x["a"] > 0, "up", "down"))
    spline = lambda p: nn.Sequential(nn.Linear(p, 4), nn.Tanh(), SoftTree(4, depth=1, family="spline_ph"))  # noqa: E731
    model = TorchSurvival(spline, epochs=np.int64(2), dtype="float64", batch_size=64).fit(frame, y)
    model.save(tmp_path / "model")
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".json", ".safetensors"}
    for module in (spline, spline(4)):
        loaded = TorchSurvival.load(tmp_path / "model", module)
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
        assert loaded.score(frame, y) == model.score(frame, y)
        assert (loaded.loss_, loaded.epoch_, loaded.batch_size) == (model.loss_, model.epoch_, 64)
    with pytest.raises(ConfigError, match="not the one that was saved"):
        TorchSurvival.load(tmp_path / "model", network(4))
    text = tmp_path / "model" / "model.json"
    text.write_text(text.read_text().replace("0", "1", 1))
    with pytest.raises(FormatError):
        TorchSurvival.load(tmp_path / "model", spline)


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (nn.Linear(2, 1), {}, "end it with HazardHead or SoftTree"),
        (lambda p: p, {}, "or a function that returns one"),
        (network, {"holdout": 0.7}, "holdout"),
        (network, {"epochs": 0}, "epochs"),
        (network, {"dtype": "float16"}, "dtype"),
        (network, {"lr": -1.0}, "lr"),
        (network, {"optimizer": "Newton"}, "optimizer"),
        (network(2).requires_grad_(False), {}, "requires_grad"),
    ],
)
def test_wrong_parameters_raise(
    rows: tuple[pd.DataFrame, Surv], module: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TorchSurvival(module, **options).fit(*rows)


def test_images_are_passed_as_they_are(rows: tuple[pd.DataFrame, Surv]) -> None:
    """Images of 6 x 6 pixels, whose brightness in two corners are the columns."""
    x, y = rows
    pixels = np.random.default_rng(1).normal(0, 0.1, size=(len(x), 1, 6, 6)).astype(np.float32)
    pixels[:, 0, :3, :3] += x["a"].to_numpy()[:, None, None]
    pixels[:, 0, 3:, 3:] += x["b"].to_numpy()[:, None, None]
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 8), nn.Tanh())
    model = TorchSurvival(nn.Sequential(network, HazardHead(8)), epochs=15, encode=False).fit(pixels, y)
    assert model.score(pixels, y) > 0.6
    np.testing.assert_array_equal(model.predict(torch.tensor(pixels)), model.predict(pixels))


def test_losses_and_rows_that_are_no_numbers_raise(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, y = rows
    with pytest.raises(TrainingError, match="smaller lr"):
        TorchSurvival(network, lr=1e30, epochs=3).fit(x, y)
    with pytest.raises(DataError, match="numbers only with encode=False"):
        TorchSurvival(network, encode=False).fit(x.assign(c="text"), y)
    with pytest.raises(DataError, match="array of rows"):
        TorchSurvival(network, encode=False).fit(x["a"].to_numpy(), y)


# ------------------------------------------------------------------ loops of torch


@pytest.fixture(scope="module")
def tensors(gbsg2: SurvivalData) -> tuple[Tensor, Tensor, Tensor]:
    """Encoded rows, times and events."""
    x = Preprocessor(Schema.of(gbsg2.frame)).fit(gbsg2.frame).transform(gbsg2.frame)
    return torch.tensor(x).float(), torch.tensor(gbsg2.time), torch.tensor(gbsg2.event)


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


@pytest.mark.parametrize(
    ("body", "head"), [(perceptron, "mixture"), (convolution, "spline_ph"), (convolution, "tree")]
)
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
        sweep = next(line for line in blocks("bash")[0].replace("\\\n", "").splitlines() if "optuna" in line)
        assert "Best value" in run(*shlex.split(sweep)[2:])
