"""Estimated and given penalties, and the evidence, against restricted maximum likelihood by mgcv."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch.data import Preprocessor, Schema
from sstorch.data.design_matrix import DesignMatrix
from sstorch.data.encodings import ColumnEncodings, Encodings
from sstorch.newton import Gaussian, newton
from sstorch.nn import make_family
from sstorch.objective import Sample
from sstorch.objective.rows import counted_weight
from sstorch.optim.evidence import Kinds, estimate
from sstorch.optim.linear_hazards import LinearHazards
from sstorch.soft.design import Design, null_start

# script and values: tests/optim/penalties.R
HERE = Path(__file__).parent
IN_R: dict[str, Any] = json.loads((HERE / "penalties_in_r.json").read_text())
KINDS = ("line", "curve", "category")
# Precision of the vague prior of the intercept in `estimate`.
VAGUE = 1e-2


def problem() -> tuple[Design, LinearHazards, Kinds]:
    """The rows of the script as a problem of an exponential regression with a curve of x."""
    rows = pd.read_csv(HERE / "penalties_in_r.csv").astype({"g": "category"})
    encodings = ColumnEncodings.of({"x": "spline(4)"})
    preprocessor = Preprocessor(
        Schema.of(rows[["x", "z1", "z2", "g"]]), encodings=Encodings(encodings, encodings)
    )
    features = torch.tensor(preprocessor.fit(rows).transform(rows))
    time, event = (torch.tensor(rows[name].to_numpy(dtype=float))[None] for name in ("time", "event"))
    sample = Sample(DesignMatrix(features[None], (1,)), time.log(), event, torch.ones_like(time))
    design = Design.of(sample, features.shape[1], preprocessor)
    hazards = design.hazards(make_family("exponential"), sample, counted_weight(sample))
    return design, hazards, design.kinds_of(1, 0)


def test_lambda_and_freedom_of_each_kind_are_those_of_mgcv() -> None:
    _, hazards, kinds = problem()
    expected = IN_R["columns"]
    found = estimate(hazards, kinds, null_start(hazards))
    assert kinds.names == KINDS
    freedom = kinds.sums(found.freedom)[0].tolist()
    # The fixed point takes the Hessian as given; the maximum of mgcv moves it with the penalties.
    assert found.penalty[0].tolist() == pytest.approx([expected["penalty"][k] for k in KINDS], rel=0.03)
    assert freedom == pytest.approx([expected["freedom"][k] for k in KINDS], abs=0.03)
    log_hazard = hazards.parameters(found.theta)[0][0, :12]
    assert log_hazard.tolist() == pytest.approx(expected["log_hazard"], abs=0.01)
    # A flat prior of the intercept there, a vague one here.
    flat = np.log(VAGUE / (2 * np.pi)) / 2
    assert float(found.evidence) - flat == pytest.approx(expected["log_marginal"], abs=2e-3)


@pytest.mark.parametrize("case", ["columns", "columns_low", "columns_high"])
def test_coefficients_at_given_penalties_are_those_of_mgcv(case: str) -> None:
    _, hazards, kinds = problem()
    expected = IN_R[case]
    penalty = torch.tensor([[expected["penalty"][k] for k in KINDS]], dtype=torch.float64)
    start = null_start(hazards)
    prior = Gaussian(kinds.spread(penalty, 0.0), torch.zeros_like(start))
    found = newton(hazards, prior, start)
    assert -float(found.loss) == pytest.approx(expected["log_likelihood"], abs=1e-8)
    log_hazard = hazards.parameters(found.theta)[0][0, :12]
    assert log_hazard.tolist() == pytest.approx(expected["log_hazard"], abs=1e-6)
    freedom = 1 - prior.precision * torch.linalg.inv(
        found.hessian + torch.diag_embed(prior.precision)
    ).diagonal(dim1=-2, dim2=-1)
    assert kinds.sums(freedom)[0].tolist() == pytest.approx([expected["freedom"][k] for k in KINDS], abs=1e-6)
    factor = torch.linalg.cholesky(found.hessian + torch.diag_embed(prior.precision))
    volume = kinds.spread(penalty, 1.0).log().sum() / 2 - factor.diagonal(dim1=-2, dim2=-1).log().sum()
    evidence = -found.loss - prior.value(found.theta) + volume + np.log(2 * np.pi) / 2
    assert float(evidence) == pytest.approx(expected["log_marginal"], abs=1e-6)


@pytest.mark.parametrize(
    ("case", "flat", "penalised"),
    [
        ("smooth", ("x", "z1", "z2"), ("curve",)),
        ("smooth_ridge", ("x",), ("line", "curve")),
        ("random_effect", ("z1", "z2"), ("category",)),
    ],
)
def test_terms_of_mgcv_have_its_lambda_and_freedom(
    case: str, flat: tuple[str, ...], penalised: tuple[str, ...]
) -> None:
    design, whole, _ = problem()
    expected = IN_R[case]
    # Columns without a variance of their own have no kind.
    names = dict(
        zip(("x", "z1", "z2"), (j for j, kind in enumerate(design.kinds, 1) if kind == "line"), strict=True)
    )
    free = [names[name] for name in flat]
    held = [j for j, kind in enumerate(design.kinds, 1) if kind in penalised and j not in free]
    x = DesignMatrix(design.z[..., [j - 1 for j in free + held]], (1,))
    hazards = replace(whole, x=x, centre=None, scale=None)
    own = Kinds(
        penalised, torch.tensor([-1] * (1 + len(free)) + [penalised.index(design.kinds[j - 1]) for j in held])
    )
    found = estimate(hazards, own, null_start(hazards))
    # From the unit of the block to that of the roughness.
    block = float(design.scale[0, design.kinds.index("curve")])
    unit = {"curve": block**2}
    penalty = {
        name: value * unit.get(name, 1.0)
        for name, value in zip(penalised, found.penalty[0].tolist(), strict=True)
    }
    assert penalty == pytest.approx(expected["penalty"], rel=0.03)
    freedom = dict(zip(penalised, own.sums(found.freedom)[0].tolist(), strict=True))
    if "curve" in freedom:  # mgcv counts the line of x with its curve
        freedom["x"] = freedom.pop("curve") + 1
    assert freedom == pytest.approx({name: expected["freedom"][name] for name in freedom}, abs=0.03)
    log_hazard = hazards.parameters(found.theta)[0][0, :12]
    assert log_hazard.tolist() == pytest.approx(expected["log_hazard"], abs=0.005)
    if case == "random_effect":
        assert found.theta[0, 1 + len(free) :].tolist() == pytest.approx(expected["category"], abs=0.005)
