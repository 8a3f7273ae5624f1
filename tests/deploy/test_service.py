"""The service of docs/service.py, asked by an HTTP client."""

import importlib.util
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from sstorch import PrognosticTree, SurvivalData, load_dataset

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytest.importorskip("httpx", reason="the extra 'serve' is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # newer clients of Starlette prefer a fork of httpx, and say so
    from fastapi.testclient import TestClient

FILE = Path(__file__).parents[2] / "docs" / "service.py"
TIMES = [0.0, 365.0, 1826.0]
PATIENT = {
    **{"age": 61, "menostat": "Post", "tsize": 32, "tgrade": "II"},
    **{"pnodes": 9, "progrec": 20, "estrec": None, "horTh": "no"},
}


@pytest.fixture(scope="module")
def service() -> ModuleType:
    spec = importlib.util.spec_from_file_location("service", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tree(gbsg2: SurvivalData) -> PrognosticTree:
    return PrognosticTree(depth=1, leaf="weibull", time_unit="days").fit(gbsg2.frame, gbsg2.y)


@pytest.fixture
def client(service: ModuleType, tree: PrognosticTree, tmp_path: Path) -> TestClient:
    tree.save(tmp_path / "model")
    return TestClient(service.create_app(tmp_path / "model"))


def test_one_and_many_patients_get_what_the_tree_predicts(
    client: TestClient, tree: PrognosticTree, gbsg2: SurvivalData
) -> None:
    answer = client.post("/predict", json={"patient": PATIENT, "times": TIMES})
    assert answer.status_code == 200
    one = answer.json()
    assert one["survival"] == tree.predict_survival_function(PATIENT, TIMES)[0].tolist()
    assert one["group"] == tree.apply(PATIENT)[0]
    frame = gbsg2.frame[:40]
    asked = {"patients": frame.to_dict("records"), "times": TIMES}
    many = client.post("/predict/batch", json=asked).json()["predictions"]
    np.testing.assert_array_equal(
        [row["survival"] for row in many], tree.predict_survival_function(frame, TIMES)
    )
    assert [row["group"] for row in many] == tree.apply(frame).tolist()


def test_health_and_version_are_those_of_the_model(
    client: TestClient, service: ModuleType, gbsg2: SurvivalData, tmp_path: Path
) -> None:
    health = client.get("/health").json()
    assert health["status"] == "ok"
    about = client.get("/model").json()
    assert about["model"] == health["model"]
    assert about["columns"]["tgrade"] == ["I", "II", "III"]
    assert about["times"] == "days"
    PrognosticTree(depth=1, leaf="exponential").fit(gbsg2.frame, gbsg2.y).save(tmp_path / "other")
    assert (
        TestClient(service.create_app(tmp_path / "other")).get("/health").json()["model"] != health["model"]
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"patient": {**PATIENT, "age": "old"}}, "age"),
        ({"patient": {name: value for name, value in PATIENT.items() if name != "pnodes"}}, "pnodes"),
        ({"patient": {}}, "has no horTh, age, "),
        ({"times": []}, "times"),
        ({"times": [-1.0]}, "times"),
    ],
)
def test_bad_requests_are_refused_with_the_column(
    client: TestClient, change: dict[str, object], told: str
) -> None:
    answer = client.post("/predict", json={"patient": PATIENT, "times": TIMES, **change})
    assert answer.status_code == 422
    assert told in answer.text
    if "patient" in change:  # in a batch, too, where a frame would fill a column that one patient lacks
        asked = {"patients": [PATIENT, change["patient"]], "times": TIMES}
        answer = client.post("/predict/batch", json=asked)
        assert answer.status_code == 422
        assert told in answer.text
    assert client.get("/drift").json()["patients"] == 0


@pytest.mark.filterwarnings("ignore::sstorch.exceptions.DataWarning")
def test_drift_counts_missing_new_and_far_values(client: TestClient) -> None:
    odd = {**PATIENT, "tgrade": "IV", "age": 99}
    answer = client.post("/predict/batch", json={"patients": [PATIENT, odd], "times": TIMES}).json()
    usual, unusual = (row["unusual"] for row in answer["predictions"])
    assert usual == {"estrec": "missing"}
    assert unusual == usual | {"age": "outside_training_range", "tgrade": "unseen_category"}
    client.post("/predict", json={"patient": odd, "times": TIMES})
    counted = client.get("/drift").json()
    assert counted["patients"] == sum(counted["groups"].values()) == 3
    assert counted["columns"] == {
        "age": {"outside_training_range": 2},
        "tgrade": {"unseen_category": 2},
        "estrec": {"missing": 3},
    }


def test_competing_causes_get_their_incidences(service: ModuleType, tmp_path: Path) -> None:
    data = load_dataset("mgus2")
    model = PrognosticTree(depth=1, leaf="weibull").fit(data.frame, data.y)
    model.save(tmp_path / "causes")
    asked = {"patients": data.frame[:3].replace({np.nan: None}).to_dict("records"), "times": [60.0, 120.0]}
    client = TestClient(service.create_app(tmp_path / "causes"))
    rows = client.post("/predict/batch", json=asked).json()["predictions"]
    found = [[row["incidence"][cause] for cause in model.causes_] for row in rows]
    np.testing.assert_array_equal(found, model.predict_cumulative_incidence(data.frame[:3], [60.0, 120.0]))
