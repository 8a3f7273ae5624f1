"""Cumulative incidences by quadrature: against the same integral on much finer panels, and at any times."""

from typing import Any

import numpy as np
import pytest

from sstorch import PrognosticTree, load_dataset
from sstorch.deploy import export_code
from sstorch.fitted import FittedTree
from sstorch.nn import FAMILIES
from tests.conftest import nightly_but

TIMES = np.array([0.0, 1e-3, 3.0, 41.5, 120.0, 424.0, 6000.0])


def integrals(tree: FittedTree, x: object, times: np.ndarray) -> np.ndarray:
    """Sums of hazard times survival at twenty nodes of each fifth of a panel."""
    fine = np.unique(np.concatenate([tree.panels[:-1] + k / 5 * np.diff(tree.panels) for k in range(5)]))
    points, weights = np.polynomial.legendre.leggauss(20)
    found = np.zeros((len(x), len(tree.causes), len(times)))  # type: ignore[arg-type]
    for place, time in enumerate(times):
        if time > 0:
            edges = np.append(fine[fine < np.log(time)], np.log(time))
            half = np.diff(edges)[:, None] / 2
            at = (edges[:-1, None] + half * (1 + points)).ravel()
            total = tree.curves(x, np.exp(at), "cumulative_hazard")  # type: ignore[arg-type]
            for k, cause in enumerate(tree.causes):
                hazard = tree.of_cause(cause).curves(x, np.exp(at), "log_hazard")  # type: ignore[arg-type]
                found[:, k, place] = np.exp(hazard + at - total) @ (half * weights).ravel()
    return found


@pytest.mark.parametrize(
    "leaf", nightly_but(("log_logistic", "piecewise_exponential", "spline"), sorted(FAMILIES))
)
def test_incidences_are_the_integrals_of_hazard_times_survival(leaf: str) -> None:
    data = load_dataset("mgus2")
    tree = PrognosticTree(depth=1, leaf=leaf).fit(data.frame, data.y)._tree
    x = tree.encode(data.frame[:20])
    found = tree.incidence(x, TIMES)
    np.testing.assert_allclose(found, integrals(tree, x, TIMES), atol=1e-8)
    np.testing.assert_allclose(found.sum(axis=1) + tree.curves(x, TIMES), 1, atol=1e-12)
    assert (found[:, :, 0] == 0).all()
    assert (np.diff(found, axis=2) >= 0).all()
    # An incidence does not depend on the other times that are asked for, nor on their order.
    alone = [tree.incidence(x, np.array([time]))[..., 0] for time in TIMES]
    np.testing.assert_allclose(np.stack(alone, axis=2), found, atol=1e-14)
    np.testing.assert_allclose(tree.incidence(x, TIMES[::-1]), found[..., ::-1], atol=1e-14)


def test_conditional_incidences_keep_their_digits_where_few_survive() -> None:
    data = load_dataset("mgus2")
    model = PrognosticTree(depth=0, leaf="weibull").fit(data.frame, data.y)
    frame = data.frame[:3].assign(age=[70.0, 100.0, 130.0])
    after, later = 300.0, np.array([0.0, 0.5, 30.0, 400.0])
    assert model.predict_survival_function(frame, [after]).min() < 1e-20
    found = model.predict_cumulative_incidence(frame, later, after=after)
    # Integrals over panels that halve towards `after`, of h_k S / S(after).
    points, weights = np.polynomial.legendre.leggauss(20)
    x, expected, tree = model._tree.encode(frame), np.zeros_like(found), model._tree
    before = tree.curves(x, np.array([after]), "cumulative_hazard")
    for place, time in enumerate(later[1:], 1):
        edges = np.append(0.0, time * 0.5 ** np.arange(20.0, -1, -1))
        half = np.diff(edges)[:, None] / 2
        at = after + (edges[:-1, None] + half * (1 + points)).ravel()
        left = tree.curves(x, at, "cumulative_hazard") - before
        for k, cause in enumerate(tree.causes):
            hazard = tree.of_cause(cause).curves(x, at, "log_hazard")
            expected[:, k, place] = np.exp(hazard - left) @ (half * weights).ravel()
    np.testing.assert_allclose(found, expected, atol=1e-9)
    names: dict[str, Any] = {}
    exec(export_code(model, "python", after=after), names)
    patients = frame.to_dict("records")
    code = [[[*names["incidence"](each, time).values()] for time in later] for each in patients]
    np.testing.assert_allclose(np.swapaxes(code, 1, 2), found, atol=1e-12)
