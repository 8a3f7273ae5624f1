"""Cumulative incidences by quadrature: against the same integral on much finer panels, and at any times."""

import numpy as np
import pytest

from sstorch import PrognosticTree, load_dataset
from sstorch.fitted import FittedTree
from sstorch.nn import FAMILIES
from tests.conftest import nightly_but

FALLING = [name for name in sorted(FAMILIES) if not FAMILIES[name]().can_rise]
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


@pytest.mark.parametrize("leaf", nightly_but(("log_logistic", "piecewise_exponential", "spline"), FALLING))
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
