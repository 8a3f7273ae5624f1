"""A trained soft tree: curves, likelihood and leaves of encoded rows, saved state, export to torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from sstorch import metrics
from sstorch._types import FloatArray, IntArray
from sstorch._version import __version__
from sstorch.base import CurveKind
from sstorch.data import Preprocessor, SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.memory import at_once, check_room
from sstorch.nn import FAMILIES, HazardFamily, Prediction, SoftTree, make_family
from sstorch.quadrature import sum_rule

METADATA = "sstorch.json"

# Elements of the largest intermediate of a prediction; rows are taken in chunks that stay below. Two MiB stay
# in the cache, which thirty do not.
_CHUNK_ELEMENTS = 2**18
# Of curves to be scored: the rows of a fold in one piece where that is possible, since matrix products round
# differently with another number of rows and the scores of a study should stay the same to the last digit.
_SCORED_ELEMENTS = 2**22
# What one row of a quantile or of a restricted mean counts: it takes 512 elements, but many small operations,
# which fewer rows at a time would repeat too often.
_QUANTILE_ELEMENTS = 32
# Slopes of leaves that differ by less are the same.
_SAME_SLOPES = 1e-9


@dataclass(frozen=True)
class FittedTree:
    """A trained soft tree with the preprocessing of its rows: all that predicting, reading and scoring need.

    Rows are passed as encoded features ``x``, shape (n, p), made by :meth:`encode`; times are in original
    units. Results are NumPy arrays of the tree's floating point type.

    Attributes:
        module: the tree, without batch dimension.
        preprocessor: fitted on the training rows.
        prediction: ``"hbp"``, one leaf per row, or ``"mixture"``, the average of all leaves.
        time_unit: of its times, as texts name it; None if not known.
        time_varying: whether training subjects had several rows, so that one row does not determine survival
            from time zero: texts then say on what condition it holds.
    """

    module: SoftTree
    preprocessor: Preprocessor
    prediction: Prediction = "hbp"
    time_unit: str | None = None
    time_varying: bool = False

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """Encoded features of rows, (n, p), on the device of the tree."""
        like = self.module.log_time_scale
        features = self.preprocessor.transform(frame)
        return torch.as_tensor(features, device=like.device, dtype=like.dtype)

    # ------------------------------------------------------------------ predict

    def curves(
        self,
        x: Tensor,
        times: FloatArray,
        kind: CurveKind | Literal["log_hazard"] = "survival",
        falling: bool = False,
    ) -> FloatArray:
        """Curves of rows.

        Args:
            x: encoded features, shape (n, p).
            times: shape (n_times,), or (n, n_times) if every row has its own.
            kind: of the curves.
            falling: give survival curves as scores take them: float64, and curves that rise, as those of
                unconstrained splines can, replaced by their running minimum. Times must increase.

        Returns:
            shape (n, n_times).
        """
        function, at = getattr(self.module, kind), torch.as_tensor(times, device=x.device)
        limit = _SCORED_ELEMENTS if falling else None
        rows = (x, at) if at.ndim == 2 else (x,)
        curves = self._by_chunk(
            lambda x, at=at: function(x, at, self.prediction), at.shape[-1], *rows, limit=limit
        )
        if falling:
            curves = curves.astype(np.float64, copy=False)
            if self.module.family.can_rise:
                np.minimum.accumulate(curves, axis=1, out=curves)
        return curves

    def risk(self, x: Tensor, times: FloatArray) -> FloatArray:
        """Sum of the cumulative hazard over some times, shape (n,); over very many by :func:`sum_rule`."""
        nodes, weights = sum_rule(times)
        at, weight = torch.as_tensor(nodes, device=x.device), torch.as_tensor(weights).to(x)

        def total(x: Tensor) -> Tensor:
            hazard = self.module.cumulative_hazard(x, at, self.prediction)
            return hazard.sum(-1) if nodes is times else hazard @ weight

        return self._by_chunk(total, len(at), x)

    def log_likelihood(
        self,
        x: Tensor,
        rows: SurvivalData,
    ) -> float:
        """Weighted mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x).

        Of an event within an interval it is log(S(lower | x) - S(upper | x)) + H(entry | x).

        Args:
            x: encoded features of the rows, shape (n, p).
            rows: their outcome and weights.
        """
        time, intervals = rows.nominal_time, rows.intervals
        within = np.zeros(len(time), dtype=bool) if intervals is None else intervals.censored
        start = time if intervals is None else np.where(within, intervals.lower, time)
        hazard = self.curves(x, start[:, None], "cumulative_hazard")[:, 0]
        log_hazard = self.curves(x, time[:, None], "log_hazard")[:, 0]
        if intervals is not None and within.any():
            end = self.curves(x[torch.as_tensor(within)], intervals.upper[within, None], "cumulative_hazard")
            # Whoever lived until the lower bound has the event by the upper one.
            chance = -np.expm1(hazard[within] - np.maximum(end[:, 0], hazard[within]))
            with np.errstate(divide="ignore"):  # a curve that is flat between the bounds: -inf
                log_hazard[within] = np.log(chance)
        if rows.entry.any():
            hazard = hazard - self.curves(x, rows.entry[:, None], "cumulative_hazard")[:, 0]
        return metrics.log_likelihood(rows.event, hazard, log_hazard, sample_weight=rows.uneven_weight)

    def leaf_probability(self, x: Tensor) -> FloatArray:
        """Probability of each leaf, shape (n, L), leaves from left to right."""
        return self._by_chunk(lambda x: self.module.log_leaf_probability(x).exp().mT, self._n_leaves, x)

    def apply(self, x: Tensor) -> IntArray:
        """Leaf of each row's most probable path, 0 .. L - 1 from left to right, shape (n,)."""
        return self._by_chunk(self.module.apply_leaf, self._n_leaves, x).astype(np.int64)

    def leaf_of(self, frame: pd.DataFrame) -> IntArray:
        """:meth:`apply` to rows that were read and are not encoded yet."""
        return self.apply(self.encode(frame))

    def quantile(self, x: Tensor, q: float, after: FloatArray | None = None) -> FloatArray:
        """Time by which a share ``q`` has had the event, shape (n,); +inf where that is never so.

        With ``after`` (n,) it is counted from there, of those who are alive then.
        """
        rows = (x,) if after is None else (x, torch.as_tensor(after).to(x))
        return self._by_chunk(
            lambda x, after=None: self.module.quantile(x, q, self.prediction, after),
            _QUANTILE_ELEMENTS,
            *rows,
        )

    def restricted_mean(self, x: Tensor, tau: float, after: FloatArray | None = None) -> FloatArray:
        """Area under the survival curve from 0 to ``tau``, shape (n,); +inf where the mean does not exist.

        With ``after`` (n,) it is that of the time left to those who are alive then.
        """
        rows = (x,) if after is None else (x, torch.as_tensor(after).to(x))
        return self._by_chunk(
            lambda x, after=None: self.module.restricted_mean(x, tau, self.prediction, after),
            _QUANTILE_ELEMENTS,
            *rows,
        )

    @property
    def _n_leaves(self) -> int:
        return len(self.module.topology.leaves)

    def _by_chunk(
        self, function: Callable[..., Tensor], row_elements: int, *rows: Tensor, limit: int | None = None
    ) -> npt.NDArray[Any]:
        """Apply a function of tensors of the same rows chunk by chunk, within the memory budget."""
        x = rows[0]
        if self.prediction == "mixture":
            row_elements *= self._n_leaves
        size = at_once(max(row_elements, x.shape[1]), limit or _CHUNK_ELEMENTS)
        out = np.empty(0)
        with torch.no_grad():
            for start in range(0, max(1, len(x)), size):
                part = function(*(tensor[start : start + size] for tensor in rows)).cpu().numpy()
                if start == 0:
                    check_room(len(x), part[0].size if len(part) else 0, "times")
                    # The result is filled in place: a list of parts would need its memory twice.
                    out = np.empty((len(x), *part.shape[1:]), dtype=part.dtype)
                out[start : start + size] = part
        return out

    def shares_slopes(self, leaves: Sequence[int] | None = None) -> bool:
        """Whether some leaves, all by default, have the same slopes, those of the shapes included.

        Args:
            leaves: by node.
        """
        parameters = self.module.leaf_parameters(leaves)
        # Leaves come before the features, and before the shapes of which each has slopes.
        for slopes, axis in ((parameters.slope, -2), (parameters.shape_slope, -3)):
            values = slopes.detach().cpu().double().numpy()
            if values.size and np.ptp(values, axis=axis).max() > _SAME_SLOPES:
                return False
        return True

    # ------------------------------------------------------------------ keep

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """All but the prediction as JSON and safetensors can hold it; :meth:`from_state` takes it back.

        Raises:
            ConfigError: the leaf is a family that is not in the registry, which no file could rebuild.
        """
        family = self.module.family
        if family.name not in FAMILIES or type(FAMILIES[family.name]()) is not type(family):
            raise ConfigError(
                f"leaf family {type(family).__name__} is not registered and could not be loaded again; "
                "put @register_family above its class"
            )
        dtype = str(self.module.log_time_scale.dtype).removeprefix("torch.")
        state = {
            "leaf": {"name": family.name, "options": family.options()},
            "parameters": {"depth": self.module.topology.depth, "dtype": dtype},
            "preprocessing": self.preprocessor.to_dict(),
        }
        return state, self.module.state_dict()

    @classmethod
    def from_state(cls, state: Mapping[str, Any], tensors: Mapping[str, Tensor], device: str) -> Self:
        """The tree of a state, whose ``parameters`` also hold the ``prediction``, on a device.

        What an altered state raises is of any kind: see :func:`sstorch.files.reading`.
        """
        preprocessor = Preprocessor.from_dict(state["preprocessing"])
        constants = {name.removeprefix("family."): tensor for name, tensor in tensors.items()}
        module = SoftTree(
            len(preprocessor.leaf_features),
            state["parameters"]["depth"],
            leaf_of_state(state).like(constants),
            device=device,
            dtype=tensors["log_time_scale"].dtype,
            n_gate_features=len(preprocessor.gate_features),
        )
        module.load_state_dict(tensors)
        return cls(module, preprocessor, state["parameters"]["prediction"])

    def export(self, path: Path, event_times: FloatArray, after: float | None = None) -> None:
        """Write S(t | x) as one file that torch runs without this package, with a JSON beside it in the file.

        Args:
            path: of the file.
            event_times: distinct training event times, for the JSON.
            after: time at which rows are at risk, for S(after + t | x) / S(after | x); None for S(t | x).

        Raises:
            ConfigError: the file cannot be written, or the leaves are of a family that torch cannot trace.
        """
        family, names = self.module.family, self.preprocessor.schema.feature_names_out
        if not family.exportable:
            raise ConfigError(
                f"{family.name} leaves cannot be exported: their curves are computed by cases that depend on "
                "the values; choose another family, or keep the tree with save()"
            )
        device = self.module.log_time_scale.device
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
            "event_times": event_times.tolist(),
            "output": "survival function, rows x times",
            "after": after,
        }
        with torch.no_grad():
            program = torch.export.export(PredictionModule(self, after).eval(), example, dynamic_shapes=free)
        try:
            torch.export.save(program, path, extra_files={METADATA: json.dumps(facts)})
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"{path} cannot be written: {error}; choose another file") from error


def leaf_of_state(state: Mapping[str, Any]) -> HazardFamily:
    """The family of a state as it was asked for, without what it took from the training rows."""
    return make_family(state["leaf"]["name"], **state["leaf"]["options"])


class PredictionModule(nn.Module):
    """Survival curves from features in original units: imputation, scaling, curves and the tree.

    Args:
        fitted: the tree and its preprocessing.
        after: time at which rows are at risk, from which times count; None or 0 for time zero.
    """

    offset: Tensor
    scale: Tensor
    fill: Tensor

    def __init__(self, fitted: FittedTree, after: float | None = None) -> None:
        super().__init__()
        self.after = after or 0.0
        self.tree, self.prediction = fitted.module, fitted.prediction
        preprocessor, device = fitted.preprocessor, fitted.module.log_time_scale.device
        basis = preprocessor.basis_
        self.basis = nn.Identity() if basis is None else basis.module().to(device)
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
            S(t | x) or S(after + t | x) / S(after | x), shape (N, T).
        """
        known = torch.where(torch.isnan(x), self.fill, x)
        encoded = self.basis((known - self.offset) * self.scale).to(self.tree.log_time_scale.dtype)
        if not self.after:
            return self.tree.survival(encoded, times, self.prediction)
        start = torch.full_like(times[:1], self.after)
        survival = self.tree.survival(encoded, torch.cat([start, start + times]), self.prediction)
        return survival[:, 1:] / survival[:, :1]


def _fill(preprocessor: Preprocessor) -> FloatArray:
    """The value of each encoded feature where its cell is missing, original units."""
    frequent = preprocessor.categorical == "most_frequent"
    return np.array(
        [
            preprocessor.fill_[column]
            if category is None
            else float(frequent and preprocessor.mode_[column] == category)
            for column, category in preprocessor.schema.origins
        ]
    )
