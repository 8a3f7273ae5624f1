"""A prediction service of a saved tree: one patient or many, health, version, and counters of drift.

    pip install -e '.[serve]'
    SSTORCH_MODEL=runs/mine/model uvicorn --app-dir docs --factory service:from_environment

A complete program to copy and to change; docs/deploy.md explains it.
"""

import math
import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from sstorch.data.columns import label
from sstorch.exceptions import DataError, SstorchError
from sstorch.files import JSON_NAME, checksum
from sstorch.prediction import load_tree
from sstorch.soft.estimator import SoftEstimator

Patient = dict[str, float | int | str | bool | None]
Times = Annotated[
    list[Annotated[float, Field(ge=0, allow_inf_nan=False)]], Field(min_length=1, max_length=1000)
]


class OnePatient(BaseModel):
    """Columns of a patient, and the times at which survival is wanted, in the unit of the training times."""

    patient: Patient
    times: Times


class ManyPatients(BaseModel):
    """The same of at most 10,000 patients."""

    patients: Annotated[list[Patient], Field(min_length=1, max_length=10_000)]
    times: Times


class Drift:
    """Counts values that no training row had: the first sign that patients or their coding have changed."""

    def __init__(self, model: SoftEstimator) -> None:
        encoded, schema = model.preprocessor_, model.preprocessor_.schema
        self._categories = {name: frozenset(words) for name, words in schema.categories.items()}
        self._ranges = {
            name: (low, low + 1 / factor if factor else low)
            for (name, level), low, factor in zip(
                schema.origins, encoded.offset_, encoded.scale_, strict=True
            )
            if level is None
        }
        self._counts = {name: Counter[str]() for name in schema.columns}
        self._groups, self._lock = Counter[int](), threading.Lock()

    def unusual(self, patient: Patient) -> dict[str, str]:
        """Columns of a patient whose value is missing, or which no training row had, with the reason."""
        reasons = {name: self._reason(name, patient[name]) for name in self._counts}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def count(self, unusual: Sequence[dict[str, str]], groups: Sequence[int]) -> None:
        """Add predicted patients, by what is unusual of each."""
        with self._lock:
            self._groups.update(groups)
            for reasons in unusual:
                for name, reason in reasons.items():
                    self._counts[name][reason] += 1

    def _reason(self, name: str, value: object) -> str | None:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "missing"
        if name in self._categories:
            return None if label(value) in self._categories[name] else "unseen_category"
        low, high = self._ranges[name]
        return None if low <= float(value) <= high else "outside_training_range"  # type: ignore[arg-type]

    def table(self) -> dict[str, Any]:
        """Patients since the start, by group, and by column those with a missing or a new value."""
        with self._lock:
            columns = {name: dict(counts) for name, counts in self._counts.items() if counts}
            groups = {str(group): count for group, count in sorted(self._groups.items())}
            return {"patients": self._groups.total(), "groups": groups, "columns": columns}


def create_app(folder: Path) -> FastAPI:
    """The service of the tree that is saved in a folder."""
    model = load_tree(folder)
    if not isinstance(model, SoftEstimator):
        raise TypeError(f"{folder} holds no soft tree or regression")
    file = next(path for path in (folder / JSON_NAME, folder / "model" / JSON_NAME) if path.is_file())
    version, drift = checksum(file.read_bytes())[:12], Drift(model)
    schema = model.preprocessor_.schema
    app = FastAPI(title="Survival predictions", version=version)

    def predicted(patients: Sequence[Patient], times: Sequence[float]) -> list[dict[str, Any]]:
        for number, patient in enumerate(patients):
            if absent := [name for name in schema.columns if name not in patient]:
                raise DataError(f"patient {number} has no {', '.join(absent)}; give null for a missing value")
        missing = dict.fromkeys(schema.numeric, math.nan)
        frame = pd.DataFrame(
            [{k: missing.get(k) if v is None else v for k, v in patient.items()} for patient in patients]
        )
        curves = model.predict_survival_function(frame, times).tolist()
        groups = model.apply(frame).tolist()
        unusual = [drift.unusual(patient) for patient in patients]
        rows = [
            {"group": g, "survival": s, "unusual": u} for g, s, u in zip(groups, curves, unusual, strict=True)
        ]
        if model.causes_:
            for row, incidence in zip(rows, model.predict_cumulative_incidence(frame, times), strict=True):
                row["incidence"] = dict(zip(model.causes_, incidence.tolist(), strict=True))
        drift.count(unusual, groups)
        return rows

    @app.exception_handler(SstorchError)
    def refused(request: Request, error: SstorchError) -> JSONResponse:
        return JSONResponse({"detail": str(error), "model": version}, status_code=422)

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok", "model": version}

    @app.get("/model")
    def about() -> dict[str, Any]:
        columns = {name: schema.categories.get(name, "a number") for name in schema.columns}
        return {"model": version, "summary": model.describe(), "columns": columns, "times": model.time_unit_}

    @app.get("/drift")
    def counters() -> dict[str, Any]:
        return {"model": version, **drift.table()}

    @app.post("/predict")
    def one(asked: OnePatient) -> dict[str, Any]:
        return {"model": version, **predicted([asked.patient], asked.times)[0]}

    @app.post("/predict/batch")
    def many(asked: ManyPatients) -> dict[str, Any]:
        return {"model": version, "predictions": predicted(asked.patients, asked.times)}

    return app


def from_environment() -> FastAPI:
    """The service of the model in the folder that ``SSTORCH_MODEL`` names."""
    return create_app(Path(os.environ["SSTORCH_MODEL"]))
