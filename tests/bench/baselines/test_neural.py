"""Networks beside the predictions of pycox itself."""

from pathlib import Path

import numpy as np
import pytest

from sstorch import SurvivalData
from sstorch.bench import make_baseline
from sstorch.bench.baselines import neural
from sstorch.exceptions import TrainingError

pytest.importorskip("pycox")
pytest.importorskip("torchtuples")
from pycox.models import LogisticHazard


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list:
    """The models of pycox that are made, with the rows they were trained on."""
    made = []
    real = neural.NeuralBaseline._run

    def run(self, kind, net, kept, left_out):
        made.append((real(self, kind, net, kept, left_out), kept, left_out))
        return made[-1][0]

    monkeypatch.setattr(neural.NeuralBaseline, "_run", run)
    return made


def x_of(data: SurvivalData, columns: np.ndarray | slice = slice(None)) -> np.ndarray:
    values = data.frame.to_numpy()
    return ((values - values.min(0)) / np.ptp(values, axis=0)).astype(np.float32)


def test_deepsurv_has_breslow_s_baseline(small_data: SurvivalData, models: list) -> None:
    fitted = make_baseline("deepsurv", epochs=30).fit(small_data.frame, small_data.y)
    model, x = models[0][0], x_of(small_data)
    rank = np.unique(small_data.time, return_inverse=True)[1].astype(np.float32)
    model.compute_baseline_hazards(x, (rank, small_data.event.astype(np.float32)))
    curves = fitted.falling_curves(small_data.frame, np.unique(small_data.time))
    np.testing.assert_allclose(curves, model.predict_surv_df(x).to_numpy().T, atol=1e-5)


def test_coxtime_predicts_at_the_training_times(small_data: SurvivalData, models: list) -> None:
    fitted = make_baseline("coxtime", epochs=10).fit(small_data.frame, small_data.y)
    model = models[0][0]
    order = np.argsort(small_data.time, kind="stable")
    time, x = small_data.time[order], x_of(small_data)
    scaled = ((time - time.mean()) / time.std()).astype(np.float32)
    model.compute_baseline_hazards(x[order], (scaled, small_data.event[order].astype(np.float32)))
    peer = model.predict_surv_df(x)
    assert len(peer) == len(np.unique(time))
    curves = fitted.falling_curves(small_data.frame, np.unique(time))
    np.testing.assert_allclose(curves, peer.to_numpy().T, atol=1e-5)


def cuts(data: SurvivalData) -> np.ndarray:
    labels = LogisticHazard.label_transform(20, scheme="quantiles")
    labels.fit_transform(data.time, data.event)
    return labels.cuts


def test_logistic_hazard_is_linear_between_cuts(small_data: SurvivalData, models: list) -> None:
    """As the interpolation of pycox with constant density, up to the hazard at time zero."""
    fitted = make_baseline("logistic_hazard", epochs=60).fit(small_data.frame, small_data.y)
    model = models[0][0]
    model.duration_index = cuts(small_data)
    peer = model.interpolate(4, "const_pdf").predict_surv_df(x_of(small_data))
    curves = fitted.falling_curves(small_data.frame, peer.index.to_numpy())
    at_zero = peer.iloc[0].to_numpy()
    np.testing.assert_allclose(curves, peer.to_numpy().T / at_zero[:, None], atol=1e-4)


@pytest.mark.parametrize("name", ["deepsurv", "coxtime", "logistic_hazard"])
def test_a_fifth_stops_the_training_and_no_file_is_left(
    small_data: SurvivalData, models: list, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    baseline = make_baseline(name, epochs=400, patience=3, learning_rate=0.05)
    baseline.fit(small_data.frame, small_data.y)
    model, kept, left_out = models[0]
    assert len(kept[0]) == 96
    assert len(left_out[0]) in (24, 240)  # Cox-Time repeats them
    losses = model.val_metrics.to_pandas()["loss"].to_numpy()
    assert len(losses) < 400
    assert losses.argmin() == len(losses) - 1 - 3
    assert not list(tmp_path.iterdir())


def test_few_events_train_every_network(small_data: SurvivalData) -> None:
    """Three events, and seldom one in a batch."""
    event = np.zeros(120, dtype=bool)
    event[np.argsort(small_data.time)[[10, 20, 30]]] = True
    data = SurvivalData(small_data.frame, (small_data.time, event))
    for name in ("deepsurv", "coxtime", "logistic_hazard"):
        fitted = make_baseline(name, epochs=5).fit(data.frame, data.y)
        assert np.isfinite(fitted.falling_curves(data.frame, [1.0, 10.0])).all()


def test_divergence_is_said(small_data: SurvivalData) -> None:
    with pytest.raises(TrainingError, match="diverged; give a smaller learning_rate"):
        make_baseline("deepsurv", epochs=30, learning_rate=1e30).fit(small_data.frame, small_data.y)
