"""The prediction of a fitted tree as one file that torch runs without this package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sstorch._version import __version__
from sstorch.data import Preprocessor
from sstorch.exceptions import ConfigError
from sstorch.nn import Prediction, SoftTree

if TYPE_CHECKING:
    from sstorch.soft.reading import ReadableTree

METADATA = "sstorch.json"


class PredictionModule(nn.Module):
    """Survival curves from features in original units: imputation, scaling and the tree.

    Args:
        tree: without batch dimension.
        preprocessor: fitted.
        prediction: ``"hbp"`` or ``"mixture"``.
    """

    offset: Tensor
    scale: Tensor
    fill: Tensor

    def __init__(self, tree: SoftTree, preprocessor: Preprocessor, prediction: Prediction) -> None:
        super().__init__()
        self.tree, self.prediction = tree, prediction
        device = tree.log_time_scale.device
        for name, values in (
            ("offset", preprocessor.offset_),
            ("scale", preprocessor.scale_),
            ("fill", _fill(preprocessor)),
        ):
            self.register_buffer(name, torch.as_tensor(values, device=device))

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        """Survival function.

        Args:
            x: shape (N, p) float64: numbers as they are, 1 where a category applies and 0 elsewhere, NaN
                where missing (a missing category in all its columns).
            times: shape (T,) float64, original units, >= 0.

        Returns:
            S(t | x), shape (N, T).
        """
        known = torch.where(torch.isnan(x), self.fill, x)
        encoded = ((known - self.offset) * self.scale).to(self.tree.log_time_scale.dtype)
        return self.tree.survival(encoded, times, self.prediction)


def export_prediction(tree: ReadableTree, path: Path) -> None:
    """See :meth:`ReadableTree.export_prediction`."""
    family = tree.module_.family
    if not family.exportable:
        raise ConfigError(
            f"{family.name} leaves cannot be exported: their curves are computed by cases that depend on the "
            "values; choose another family, or keep the tree with save()"
        )
    module = PredictionModule(tree.module_, tree.preprocessor_, tree.prediction).eval()
    names = tree.preprocessor_.feature_names_out
    device = tree.module_.log_time_scale.device
    # Sizes of an example must differ from one and from each other to be left open.
    example = (
        torch.zeros(3, len(names), dtype=torch.float64, device=device),
        torch.arange(1, 6, dtype=torch.float64, device=device),
    )
    free = {"x": {0: torch.export.Dim("rows")}, "times": {0: torch.export.Dim("times")}}
    facts = {
        "sstorch_version": __version__,
        "torch_version": torch.__version__,
        "features": names,
        "event_times": tree.event_times_.tolist(),
        "output": "survival function, rows x times",
    }
    with torch.no_grad():
        program = torch.export.export(module, example, dynamic_shapes=free)
    try:
        torch.export.save(program, path, extra_files={METADATA: json.dumps(facts)})
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{path} cannot be written: {error}; choose another file") from error


def _fill(preprocessor: Preprocessor) -> npt.NDArray[np.float64]:
    """What replaces a missing cell of each encoded feature, original units."""
    frequent = preprocessor.categorical == "most_frequent"
    return np.array(
        [
            preprocessor.fill_[column]
            if category is None
            else float(frequent and preprocessor.mode_[column] == category)
            for column, category in preprocessor.schema.origins
        ]
    )
