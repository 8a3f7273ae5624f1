"""The MLflow flavour with a local store: what is logged predicts as what was fitted."""

from pathlib import Path

import numpy as np
import pytest

from sstorch import OptimalSurvivalTree, PrognosticTree, SurvivalData
from sstorch.exceptions import FormatError

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("model", [PrognosticTree(depth=1), OptimalSurvivalTree(max_depth=1)], ids=repr)
def test_a_logged_model_predicts_as_the_fitted_one(
    model: PrognosticTree | OptimalSurvivalTree,
    gbsg2: SurvivalData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow installs it")
    import sstorch.mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    model.fit(gbsg2.frame, gbsg2.y)
    with mlflow.start_run():
        info = sstorch.mlflow.log_model(model, "tree")
    again = sstorch.mlflow.load_model(info.model_uri)
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(gbsg2.frame), model.predict(gbsg2.frame))
    function = mlflow.pyfunc.load_model(info.model_uri)
    table = function.predict(gbsg2.frame, params={"times": [365.0, 1825.0]})
    curves = model.predict_survival_function(gbsg2.frame, [365.0, 1825.0])
    np.testing.assert_array_equal(table[["S(365)", "S(1825)"]], curves)
    np.testing.assert_array_equal(table["group"], model.apply(gbsg2.frame))
    assert f"S({model.horizon_:g})" in function.predict(gbsg2.frame)
    sstorch.mlflow.save_model(model, tmp_path / "saved", pip_requirements=["sstorch", "numpy"])
    assert (tmp_path / "saved" / "requirements.txt").read_text().split() == ["sstorch", "numpy"]
    (tmp_path / "saved" / "model" / "tree.json").unlink(missing_ok=True)
    for file in (tmp_path / "saved" / "model").glob("*.json"):
        file.unlink()
    with pytest.raises(FormatError):
        sstorch.mlflow.load_model(str(tmp_path / "saved"))
