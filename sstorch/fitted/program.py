"""A fitted tree as a program that torch runs without this package."""

from __future__ import annotations

import copy
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sstorch._types import FloatArray
from sstorch._version import __version__
from sstorch.data import Preprocessor
from sstorch.data.basis import BasisModule
from sstorch.exceptions import ConfigError
from sstorch.files import write_whole
from sstorch.fitted.incidence import hazard_alive, panels_from
from sstorch.fitted.tree import FittedTree

METADATA = "sstorch.json"
# Rows and times of a call at most. Without a limit torch 2.7 refuses: a size could be its largest integer.
_LARGEST = 2**31 - 1


def export_program(tree: FittedTree, path: Path, after: float | None = None) -> None:
    """Write the prediction as one file that torch runs on a CPU without this package, with a JSON in it.

    With a time `after` it is S(after + t | x) / S(after | x), incidences likewise. Raises ConfigError, after
    which the file is as before: torch cannot trace or serialize the family, or the file cannot be written.
    """
    names = tree.preprocessor.schema.feature_names_out
    # A program holds the device of its constants: wherever the tree was trained, every machine has a CPU.
    on_cpu = {cause: copy.deepcopy(module).cpu() for cause, module in tree.hazards.items()}
    tree = replace(tree, hazards=on_cpu)
    # Sizes of an example must differ from one and from each other to be left open.
    example = (torch.zeros(3, len(names), dtype=torch.float64), torch.arange(1, 6, dtype=torch.float64))
    n_rows, n_times = (torch.export.Dim(name, max=_LARGEST) for name in ("rows", "times"))
    free = {"x": {0: n_rows}, "times": {0: n_times}}
    facts = {
        "sstorch_version": __version__,
        "torch_version": torch.__version__,
        "features": names,
        "event_times": tree.event_times.tolist(),
        "output": "incidences, rows x causes x times, and survival function, rows x times"
        if tree.competing
        else "survival function, rows x times",
        "causes": list(tree.causes) if tree.competing else [],
        "after": after,
    }
    content = io.BytesIO()
    step = "trace"
    try:
        with torch.no_grad():
            program = torch.export.export(
                PredictionModule(tree, after).eval(), example, dynamic_shapes=free, strict=False
            )
        step = "serialize"
        torch.export.save(program, content, extra_files={METADATA: json.dumps(facts)})
    except RuntimeError as error:
        leaves = " and ".join(sorted({module.family.name for module in tree.hazards.values()}))
        raise ConfigError(
            f"torch {torch.__version__} cannot {step} the prediction with {leaves} leaves: {error}; "
            "choose another family, or keep the tree with save()"
        ) from error
    try:
        write_whole(path, content.getbuffer())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}; choose another file") from error


class PredictionModule(nn.Module):
    """Predictions from features in original units at times that count from `after`."""

    offset: Tensor
    scale: Tensor
    fill: Tensor
    edges: Tensor

    def __init__(self, fitted: FittedTree, after: float | None = None) -> None:
        super().__init__()
        self.after = after or 0.0
        self.fitted, self.hazards = fitted, nn.ModuleList(fitted.hazards.values())
        preprocessor = fitted.preprocessor
        basis = preprocessor.basis_
        self.basis = nn.Identity() if basis is None else BasisModule(basis)
        for name, values in (
            ("offset", preprocessor.offset_),
            ("scale", preprocessor.scale_),
            ("fill", _fill(preprocessor)),
            *([("edges", panels_from(fitted.panels, self.after))] if fitted.competing else []),
        ):
            self.register_buffer(name, torch.as_tensor(values))

    def forward(self, x: Tensor, times: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """S(t | x), (N, T), after incidences (N, K, T) of several causes; conditional on `after`."""
        # Features x (N, p) float64 are numbers as they are, 1 if a category applies and 0 elsewhere, NaN if
        # missing (a missing category in all its columns); times (T,) float64.
        known = torch.where(torch.isnan(x), self.fill, x)
        tree = self.fitted
        encoded = self.basis((known - self.offset) * self.scale).to(tree.module.log_time_scale.dtype)
        if tree.competing:
            return tree.incidence_and_survival(encoded, times + self.after, self.edges, self.after)
        if not self.after:
            return tree.distributions(encoded)[0].survival(times[None])
        start = torch.full_like(times[:1], self.after)
        at = torch.cat([start, start + times])[None]
        hazard = tree.distributions(encoded)[0].cumulative_hazard(at)
        return torch.exp(hazard_alive(hazard[:, :1]) - hazard[:, 1:])


def _fill(preprocessor: Preprocessor) -> FloatArray:
    """The value of each encoded feature where its cell is missing, original units."""
    origins = preprocessor.schema.origins
    return np.array([preprocessor.fill_[name] if category is None else 0.0 for name, category in origins])
