"""MLflow flavour: fitted trees and regressions in the format of MLflow, stored as by ``save``.

``log_model`` adds a model to a run; ``mlflow.pyfunc.load_model`` loads it as a function of a DataFrame,
``load_model`` as the estimator. The extra ``mlflow`` installs MLflow.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sstorch._version import __version__
from sstorch.installing import install_extra
from sstorch.prediction import SurvivalTree, load_tree, predictions

FLAVOUR, _DATA = "sstorch", "model"
_REQUIREMENTS = (f"sstorch=={__version__}",)


def _mlflow() -> Any:
    """The parts of MLflow that are used."""
    try:
        import mlflow.artifacts
        import mlflow.models
        import mlflow.pyfunc
    except ImportError as error:
        raise ImportError(f"sstorch.mlflow needs MLflow: {install_extra('mlflow')}") from error
    return mlflow


def save_model(
    model: SurvivalTree,
    path: str | os.PathLike[str],
    mlflow_model: Any = None,
    *,
    pip_requirements: Sequence[str] = _REQUIREMENTS,
) -> None:
    """Write a fitted model as an MLflow model.

    Args:
        model: fitted.
        path: output folder, which must not exist or must be empty.
        mlflow_model: description to complete; None for a new one.
        pip_requirements: lines of ``requirements.txt``.
    """
    mlflow = _mlflow()
    folder, times = Path(path), [float(model.horizon_)]
    described = mlflow.models.Model() if mlflow_model is None else mlflow_model
    # Columns are checked by the model, whose messages name them: schemas of MLflow refuse categories.
    described.signature = mlflow.models.infer_signature(params={"times": times})
    model.save(folder / _DATA)
    (folder / "requirements.txt").write_text("\n".join([*pip_requirements, ""]))
    mlflow.pyfunc.add_to_model(described, loader_module=__name__, data=_DATA)
    described.add_flavor(FLAVOUR, sstorch_version=__version__, data=_DATA)
    described.save(str(folder / mlflow.models.model.MLMODEL_FILE_NAME))


def log_model(model: SurvivalTree, name: str, **options: Any) -> Any:
    """Log a fitted model to the active run, or to a new one.

    Args:
        model: fitted.
        name: name of the model in the run.
        **options: of :func:`save_model` and of :meth:`mlflow.models.Model.log`, such as
            ``registered_model_name``.

    Returns:
        :class:`mlflow.models.model.ModelInfo`, with the ``model_uri`` that :func:`load_model` takes.
    """
    flavour = sys.modules[__name__]
    return _mlflow().models.Model.log(artifact_path=None, name=name, flavor=flavour, model=model, **options)


def load_model(model_uri: str) -> SurvivalTree:
    """Load the estimator of a logged or saved model.

    Args:
        model_uri: folder, or an address of MLflow such as ``models:/name/1``.

    Raises:
        ImportError: MLflow is not installed; the message contains the command.
        FormatError: the model is of another flavour, or its files are altered.
    """
    return load_tree(Path(_mlflow().artifacts.download_artifacts(artifact_uri=model_uri)) / _DATA)


class _Function:
    """A model as pyfunc has it.

    Args:
        model: fitted.
    """

    def __init__(self, model: SurvivalTree) -> None:
        self._model = model

    def predict(self, frame: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Predict group, survival at ``params["times"]`` and median of rows, as ``sstorch-predict``.

        The default time is ``horizon_`` of the model.
        """
        times = (params or {}).get("times", [self._model.horizon_])
        return predictions(self._model, frame, times)


def _load_pyfunc(path: str) -> _Function:
    """Loader interface of MLflow."""
    return _Function(load_tree(Path(path)))
