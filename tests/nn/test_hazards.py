"""One table of families; every generic test runs over it."""

import copy
import math
import warnings
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from scipy.integrate import quad
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.exceptions import ConfigError, DataWarning
from sstorch.nn import (
    FAMILIES,
    Exponential,
    GeneralizedGamma,
    HazardFamily,
    LogisticHazard,
    PiecewiseExponential,
    SoftTree,
    Spline,
    Weibull,
    make_family,
    register_family,
)
from sstorch.nn.hazards.base import LogTimes
from sstorch.nn.hazards.spline import knots_at_quantiles


class Derived(HazardFamily):
    """A family that gives nothing but its cumulative hazard: all else is derived."""

    name = "derived"
    shape_names = ("log_a",)

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return torch.exp(torch.exp(shape[..., 0]) * (log_time - linear))


CASES: dict[str, Callable[[], HazardFamily]] = {
    **{name: lambda name=name: make_family(name) for name in sorted(FAMILIES)},
    "spline_ph, m = 0": lambda: Spline("hazard", knots=0),
    "spline_po, m = 4": lambda: Spline("odds", knots=4),
    "logistic_hazard": lambda: LogisticHazard([0.2, 1.0, 4.0]),
    "derived": Derived,
}
families = pytest.mark.parametrize("case", CASES)


def arguments(family: HazardFamily, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Log times (9,), linear predictors (5, 1) and shapes (5, 1, m)."""
    generator = torch.Generator().manual_seed(3)
    y = torch.linspace(-3, 2, 9, dtype=torch.float64)
    g = torch.tensor([-0.5, 0.0, 0.8, -1.5, 0.2], dtype=torch.float64)[:, None]
    shape = 0.5 * torch.randn(5, 1, len(family.shape_names), generator=generator, dtype=torch.float64)
    return y.to(dtype), g.to(dtype), shape.to(dtype)


def built(case: str, dtype: torch.dtype = torch.float64) -> HazardFamily:
    return CASES[case]().to(dtype=dtype)


@pytest.fixture(params=CASES)
def family(request: pytest.FixtureRequest) -> HazardFamily:
    return built(request.param)


# ------------------------------------------------------------------ what holds for every family


def test_starts_at_one_and_never_rises(family: HazardFamily) -> None:
    _, g, shape = arguments(family)
    y = torch.linspace(-40, 12, 2001, dtype=torch.float64)
    hazard = family.cumulative_hazard(y, g, shape)
    for survival in (torch.exp(-hazard), family.survival(y, g, shape)):
        assert survival[:, 0].min() > 1 - 1e-6
        assert survival.diff(dim=-1).max() <= 1e-15
        assert ((survival >= 0) & (survival <= 1)).all()
    survival, finite = family.survival(y, g, shape), hazard < 600
    # An error of the hazard's last digit is one of as many digits as it has before the point.
    torch.testing.assert_close(survival[finite], torch.exp(-hazard[finite]), rtol=1e-12, atol=0)
    assert (survival[hazard > 800] == 0).all()


def test_hazard_is_the_slope_of_the_cumulative_hazard(family: HazardFamily) -> None:
    y, g, shape = arguments(family)
    hazard, log_hazard = family.terms(y, g, shape)
    torch.testing.assert_close(family.cumulative_hazard(y, g, shape), hazard, rtol=1e-13, atol=0)
    torch.testing.assert_close(family.log_hazard(y, g, shape), log_hazard, rtol=1e-12, atol=1e-13)
    step = 1e-5
    up, down = (family.cumulative_hazard(y + s, g, shape) for s in (step, -step))
    slope = (up - down) / (2 * step) * torch.exp(-y)
    torch.testing.assert_close(log_hazard.exp().expand_as(slope), slope, rtol=1e-6, atol=1e-12)


def test_an_interval_has_the_probability_between_its_bounds(family: HazardFamily) -> None:
    y, g, shape = arguments(family)
    one, survival, width = torch.ones_like(y), family.survival(y, g, shape), 1e-6
    before, after = torch.cat([y.new_full((1,), -torch.inf), y[:-1]]), y  # the first from time zero
    found = family.loss(LogTimes(one, one, None, before, after), g, shape)
    drop = -torch.cat([torch.ones_like(survival[:, :1]), survival], -1).diff(dim=-1)
    torch.testing.assert_close(torch.exp(-found), drop, rtol=1e-11, atol=1e-13)
    # Bounds that are close give the density.
    close = family.loss(LogTimes(one, one, None, y, y + width), g, shape) + math.log(width) + y
    density = family.loss(LogTimes(y + width / 2, one), g, shape)
    torch.testing.assert_close(close, density, rtol=1e-5, atol=1e-5)


def test_gradcheck(family: HazardFamily) -> None:
    y, g, shape = arguments(family)
    g, shape = g.clone().requires_grad_(), shape.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: family.terms(y, a, b), (g, shape))
    event = (torch.arange(9) % 2).double()
    assert torch.autograd.gradcheck(lambda a, b: family.loss(LogTimes(y, event), a, b), (g, shape))


def test_closed_derivatives_are_those_of_autograd(family: HazardFamily) -> None:
    if not family.closed_form:
        pytest.skip("its derivatives are those of autograd")
    y, g, shape = arguments(family)
    one, event = family.expand((1,)), (torch.arange(9) % 2).double()[None, None]
    linear, shape = g.expand(1, 5, 9), shape[None]
    times = LogTimes(y[None, None], event)
    found = one.derivatives(times, linear, shape, one.basis(y[None]))
    expected = HazardFamily.derivatives(one, times, linear, shape)
    torch.testing.assert_close(found[:2], expected[:2], rtol=1e-10, atol=1e-12)
    for pair, value in expected[2].items():
        own = found[2].get(pair, torch.zeros_like(value)).expand_as(value)
        torch.testing.assert_close(own, value, rtol=1e-8, atol=1e-11)
    torch.testing.assert_close(one.derivatives(times, linear, shape, second=False)[:2], found[:2])


def test_batch_is_loop(family: HazardFamily) -> None:
    y, g, shape = arguments(family)
    batch = family.expand((5,)).terms(y.expand(5, -1), g, shape)
    for k in range(5):
        alone = family.expand((5,)).select(k).terms(y, g[k], shape[k])
        torch.testing.assert_close(batch[0][k], alone[0], rtol=1e-13, atol=0)
        torch.testing.assert_close(batch[1][k], alone[1].expand(9), rtol=1e-12, atol=1e-13)


@families
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_extreme_times_have_no_nan(case: str, dtype: torch.dtype) -> None:
    family = built(case, dtype)
    _, g, shape = arguments(family, dtype)
    g, shape = g.clone().requires_grad_(), shape.clone().requires_grad_()
    y = torch.log(torch.tensor([1e-12, 1e-6, 1e6, 1e12], dtype=dtype))
    _, log_hazard = family.terms(y, g, shape)
    survival = family.survival(y, g, shape)
    assert ((survival >= 0) & (survival <= 1)).all()
    assert not log_hazard.isnan().any()
    for far in (-800.0, 800.0):  # late entries of rows that are gone by then have an infinite loss
        loss = family.loss(LogTimes(y, torch.ones_like(y), y - 1), g + far, shape)
        assert case == "derived" or not loss.isnan().any()  # whose log hazard overflows, too
    parameters = [part for part in (g, shape) if part.numel()]
    for value in (survival, log_hazard):
        for gradient in torch.autograd.grad(value.sum(), parameters, retain_graph=True, allow_unused=True):
            assert gradient is None or not gradient.isnan().any()


@families
def test_quantile_inverts_survival(case: str) -> None:
    family = built(case)
    _, g, shape = arguments(family)
    q = torch.tensor([1e-6, 0.01, 0.25, 0.5, 0.9, 0.999], dtype=torch.float64)
    target = -torch.log1p(-q)
    y = family.log_quantile(target, g, shape)
    reached = torch.isfinite(y)
    failure = -torch.expm1(-family.cumulative_hazard(y, g, shape))
    torch.testing.assert_close(failure[reached], q.expand_as(y)[reached], rtol=1e-8, atol=1e-12)
    # Only Gompertz distributions with a < 0 leave some subjects without the event.
    assert reached.all() or case == "gompertz"
    at_the_end = torch.exp(-family.cumulative_hazard(torch.tensor(300.0).double(), g, shape))
    assert (at_the_end.expand_as(y)[~reached] > (1 - q).expand_as(y)[~reached]).all()


def test_quantile_is_differentiable(family: HazardFamily, all_night: bool) -> None:
    _, g, shape = arguments(family)
    target = torch.tensor(math.log(2), dtype=torch.float64)
    g, shape = g.clone().requires_grad_(), shape.clone().requires_grad_()
    inputs = (g, shape) if shape.numel() else (g,)

    def median(*parts: Tensor) -> Tensor:
        y = family.log_quantile(target, parts[0], parts[1] if len(parts) > 1 else shape)
        return y[torch.isfinite(y)]

    assert torch.autograd.gradcheck(median, inputs, atol=1e-6, rtol=1e-5, fast_mode=not all_night)


@pytest.mark.parametrize("tau", [0.3, 50.0, math.inf])
@families
def test_restricted_mean_against_a_fixed_rule(case: str, tau: float) -> None:
    """Gauss and Legendre's rule between powers of two and the family's corners; the mean as a limit."""
    family = built(case)
    _, g, shape = arguments(family)
    mine = family.restricted_mean(torch.tensor(tau, dtype=torch.float64).log(), g, shape).squeeze(-1)
    if tau == math.inf:
        early, late = (family.restricted_mean(torch.tensor(y).double(), g, shape)[..., 0] for y in (300, 600))
        finite = torch.isfinite(mine)
        torch.testing.assert_close(late[finite], mine[finite], rtol=1e-6, atol=0)
        assert (late[~finite] > 1.5 * early[~finite]).all()
        heavy = case not in ("exponential", "weibull", "log_normal", "piecewise_exponential")
        assert heavy or finite.all()
        return
    corners = [2.0**k for k in range(-30, 8)] + family.corners().exp().tolist()
    edges = np.array([0.0, *sorted({corner for corner in corners if corner < tau}), tau])
    places, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    times = (edges[:-1, None] + half * (1 + places)).ravel()
    survival = torch.exp(-family.cumulative_hazard(torch.as_tensor(times).log(), g, shape))
    theirs = survival @ torch.as_tensor((half * weights).ravel())
    torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=0)


def test_restricted_mean_of_those_far_away(family: HazardFamily) -> None:
    """Linear predictors that no data give: the event at once, or never; in double and in single precision."""
    _, g, shape = arguments(family)
    far = torch.tensor([-500.0, -60.0, 60.0, 500.0]).double()[:, None, None] + 0 * g
    tau = torch.tensor(4.5).double()
    double = family.restricted_mean(tau.log(), far, shape)
    single = copy.deepcopy(family).float().restricted_mean(tau.log().float(), far.float(), shape.float())
    assert ((double >= 0) & (double <= tau * (1 + 1e-12))).all()
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3)


@families
def test_start_is_finite_whatever_the_rows(case: str) -> None:
    """No event, one row, one event, all events at one time, and an ordinary leaf."""
    y = torch.linspace(-2, 1, 8, dtype=torch.float64).repeat(5, 1)
    event, weight = torch.ones(2, 5, 8, dtype=torch.float64)
    event[0], weight[1, 1:], event[2, 1:], y[3] = 0, 0, 0, 0.5
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        family = built(case).prepare(y, event, weight, torch.zeros(5, dtype=torch.float64))
    placed = isinstance(family, LogisticHazard | PiecewiseExponential | Spline) and case != "logistic_hazard"
    assert placed == any("no event in 1 of 5 sets of training rows" in str(each.message) for each in caught)
    intercept, shape = family.start(y, event, weight)
    assert intercept.isfinite().all()
    assert shape.isfinite().all()
    assert family.loss(LogTimes(y, event), intercept[:, None], shape[:, None, :]).isfinite().all()


@families
def test_start_is_a_stationary_point_and_uses_weights(case: str) -> None:
    family = built(case).expand((1,))
    generator = torch.Generator().manual_seed(1)
    y = torch.randn(1, 60, generator=generator, dtype=torch.float64)
    event = (torch.rand(1, 60, generator=generator) < 0.7).double()
    repeats = torch.randint(0, 3, (60,), generator=generator)
    again = torch.arange(60).repeat_interleave(repeats)
    found = family.start(y, event, repeats[None].double())
    repeated = family.start(y[:, again], event[:, again], torch.ones(1, len(again)).double())
    torch.testing.assert_close(found[0], repeated[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(found[1], repeated[1], rtol=0, atol=1e-5)
    theta = torch.cat([found[0][:, None], found[1]], dim=1).requires_grad_()
    loss = (repeats * family.loss(LogTimes(y, event), theta[:, :1], theta[:, None, 1:])).sum() / repeats.sum()
    (gradient,) = torch.autograd.grad(loss, theta)
    if case == "spline":  # theta starts at 1
        assert (theta[:, -1] == 0).all()
        gradient = gradient[:, :-1]
    # A life table has no exact maximum where rows are censored within intervals.
    assert gradient.abs().max() < (1e-2 if case == "logistic_hazard" else 1e-6)


@pytest.mark.parametrize("case", [case for case in CASES if case != "derived"])
@pytest.mark.parametrize("ancillary", ["constant", "linear"])
def test_options_make_the_family_again(case: str, ancillary: str) -> None:
    family = built(case)
    options = {**family.options(), "ancillary": ancillary}
    again = make_family(family.name, **options)
    assert type(again) is type(family)
    assert (again.shape_names, again.options()) == (family.shape_names, options)


# ------------------------------------------------------------------ against other implementations

TWINS: dict[str, Callable[[float, list[float]], object]] = {
    "exponential": lambda g, s: scipy.stats.expon(scale=math.exp(-g)),
    "weibull": lambda g, s: scipy.stats.weibull_min(math.exp(s[0]), scale=math.exp(g)),
    "log_logistic": lambda g, s: scipy.stats.fisk(math.exp(s[0]), scale=math.exp(g)),
    "log_normal": lambda g, s: scipy.stats.lognorm(math.exp(s[0]), scale=math.exp(g)),
    "gompertz": lambda g, s: scipy.stats.gompertz(math.exp(g) / abs(s[0]), scale=1 / abs(s[0])),
    # W = log(Gamma(k) Q^2) / Q
    "generalized_gamma": lambda g, s: scipy.stats.gengamma(
        1 / s[1] ** 2, s[1] / math.exp(s[0]), scale=math.exp(g) * (s[1] ** 2) ** (math.exp(s[0]) / s[1])
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_against_scipy(name: str) -> None:
    family = make_family(name)
    y, g, shape = arguments(family)
    shape = shape.abs() if name == "gompertz" else shape  # SciPy's has no cured
    hazard, log_hazard = family.terms(y, g, shape)
    for k in range(len(g)):
        twin = TWINS[name](float(g[k]), shape[k, 0].tolist())
        t = y.exp().numpy()
        log_survival, log_density = twin.logsf(t), twin.logpdf(t)
        usable = log_survival > -30  # SciPy's generalized gamma has no tail of its own
        np.testing.assert_allclose(-hazard[k].numpy()[usable], log_survival[usable], rtol=1e-9, atol=1e-15)
        expected = (log_density - log_survival)[usable]
        np.testing.assert_allclose(log_hazard[k].expand(9).numpy()[usable], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("q", [-5.0, -0.7, -0.49, -1e-3, -1e-7, 0.0, 1e-4, 0.02, 0.4, 1.0, 3.0])
def test_generalized_gamma_against_high_precision(q: float) -> None:
    w = torch.tensor([-8.0, -2.0, -0.1, 0.0, 0.3, 2.0, 6.0], dtype=torch.float64)
    zero, shape = torch.zeros(1).double(), torch.tensor([0.0, q], dtype=torch.float64)
    k = 1 / mpmath.mpf(q) ** 2 if q else mpmath.inf

    def survival_and_failure(at: float) -> tuple[mpmath.mpf, mpmath.mpf]:
        if q == 0.0:
            return mpmath.ncdf(-mpmath.mpf(at)), mpmath.ncdf(at)
        if abs(q) < 1e-2:  # the incomplete gamma function of so large an argument is out of reach
            constant = mpmath.log(abs(mpmath.mpf(q))) + k * mpmath.log(k) - mpmath.loggamma(k)
            with mpmath.workdps(30):
                above = mpmath.quad(
                    lambda v: mpmath.exp(constant + k * (q * v - mpmath.exp(q * v))),
                    [at, at + 1, at + 3, at + 8, at + 25],
                )
            return above, 1 - above
        x = k * mpmath.exp(mpmath.mpf(q) * at)
        upper, lower = (mpmath.gammainc(k, *ends, regularized=True) for ends in ((x, mpmath.inf), (0, x)))
        return (upper, lower) if q > 0 else (lower, upper)

    with mpmath.workdps(60):
        found = GeneralizedGamma().cumulative_hazard(w, zero, shape)
        for mine, at in zip(found.tolist(), w.tolist(), strict=True):
            survival, failure = survival_and_failure(at)
            theirs = -mpmath.log1p(-failure) if failure < 0.5 else -mpmath.log(survival)
            # The integral has 15 digits of S itself, the quadrature fewer at large |Q|.
            least = 1e-14 if abs(q) < 1e-2 else 0
            assert mine == pytest.approx(float(theirs), rel=1e-11 if abs(q) <= 3 else 1e-9, abs=least)


@pytest.mark.parametrize(
    ("scale", "leaf", "sign"),
    [("hazard", "weibull", 1), ("odds", "log_logistic", 1), ("normal", "log_normal", -1)],
)
def test_spline_without_knots_is_a_parametric_model(scale: str, leaf: str, sign: int) -> None:
    spline, twin = Spline(scale, knots=0), make_family(leaf)
    y, g, shape = arguments(twin)
    # g + exp(w) y = a (y - g'): the same a, and g = -a g'.
    mine = spline.terms(y, -torch.exp(sign * shape[..., 0]) * g, sign * shape)
    torch.testing.assert_close(mine, twin.terms(y, g, shape), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("theta", "scale"), [(1e-12, "hazard"), (1.0, "odds")])
def test_aranda_ordaz_holds_the_hazards_and_odds_models(theta: float, scale: str) -> None:
    twin = Spline(scale)
    y, g, shape = arguments(twin)
    mine = Spline("theta").terms(
        y, g, torch.cat([shape, torch.full_like(shape[..., :1], math.log(theta))], -1)
    )
    torch.testing.assert_close(mine, twin.terms(y, g, shape), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("log_sigma", [1.5, 3.0, 4.0, 8.0, 200.0, 700.0])
def test_restricted_mean_of_a_wide_log_normal(log_sigma: float) -> None:
    # Half of the subjects are gone at once, and nearly all of the others are there at tau.
    zero, shape = torch.zeros((), dtype=torch.float64), torch.tensor([log_sigma], dtype=torch.float64)
    mean = make_family("log_normal").restricted_mean(zero, zero, shape)
    within = quad(lambda t: scipy.stats.norm.sf(math.log(t) * math.exp(-log_sigma)), 0, 1)[0]
    assert float(mean) == pytest.approx(within, abs=1e-9)
    flat = make_family("weibull").restricted_mean(zero, zero, -shape)
    within = quad(lambda t: math.exp(-(t ** math.exp(-log_sigma))), 0, 1, epsabs=1e-12)[0]
    assert float(flat) == pytest.approx(within, abs=1e-9)


def test_a_theta_that_overflows_gives_a_hazard() -> None:
    # In single precision: the spline leaves the range beyond its knots, theta is exp(89).
    y, shape = torch.tensor([-3.0, 0.4, 4.5]), torch.tensor([0.653, -5.55, 88.33, 89.1])
    _, log_hazard = Spline("theta").float().terms(y, torch.tensor(7.7), shape)
    assert not log_hazard.isnan().any()


# ------------------------------------------------------------------ splines


def curves_of(family: Spline, y: Tensor) -> FloatArray:
    """The functions I_j at log times (n,), shape (n, m + 1)."""
    curves: FloatArray = family.basis(y).chunk(2)[0].mT.numpy()
    return curves


@pytest.mark.parametrize("n_knots", [0, 1, 5])
def test_basis_spans_the_natural_cubic_splines(n_knots: int) -> None:
    """Truncated powers as in Royston and Parmar are combinations of 1 and the functions I_j."""
    family = Spline("hazard", knots=n_knots)
    knots = family.corners().numpy()
    lowest, highest = knots[[0, -1]]
    y = np.linspace(lowest - 3, highest + 3, 400)
    cubes = {knot: np.clip(y - knot, 0, None) ** 3 for knot in knots}
    theirs = [np.ones_like(y), y]
    for knot in knots[1:-1]:
        share = (highest - knot) / (highest - lowest)
        theirs.append(cubes[knot] - share * cubes[lowest] - (1 - share) * cubes[highest])
    mine = np.column_stack([np.ones_like(y), curves_of(family, torch.as_tensor(y))])
    solution, *_ = np.linalg.lstsq(mine, np.column_stack(theirs), rcond=None)
    np.testing.assert_allclose(mine @ solution, np.column_stack(theirs), atol=1e-9)
    np.testing.assert_allclose(curves_of(family, torch.zeros(1, dtype=torch.float64)), 0, atol=1e-14)


@pytest.mark.parametrize("scale", ["hazard", "odds", "normal", "theta"])
def test_splines_never_rise(scale: str) -> None:
    """Random knots; the grid reaches 3x past them on both sides."""
    generator, draws, n_times = torch.Generator().manual_seed(0), 500, 400
    log_time = torch.randn(draws, 30, generator=generator, dtype=torch.float64) * 2
    ones = torch.ones_like(log_time)
    family = Spline(scale, knots=3).prepare(log_time, ones, ones, torch.zeros(draws, dtype=torch.float64))
    size = (draws, 1, len(family.shape_names))
    shape = 3 * torch.randn(size, generator=generator, dtype=torch.float64)
    g = 5 * torch.randn(draws, 1, generator=generator, dtype=torch.float64)
    low, high = family.table[:, 0, :1], family.ends[:, -1:]
    y = low + (high - low) * torch.linspace(-3, 4, n_times, dtype=torch.float64)
    survival = torch.exp(-family.cumulative_hazard(y, g, shape))
    assert survival.diff(dim=-1).max() < 1e-13  # rounding of a value near one
    curve, log_slope, *_ = family.index(y, torch.zeros(()).double(), shape)
    assert log_slope.isfinite().all()
    assert (curve.diff(dim=-1) >= -1e-13 * curve.abs().amax(-1, keepdim=True)).all()


@pytest.mark.parametrize(("m", "expected"), [(1, [50]), (2, [33, 67]), (4, [20, 40, 60, 80])])
def test_knots_are_percentiles_of_the_event_times(m: int, expected: list[int]) -> None:
    y = np.random.default_rng(0).normal(size=57)
    np.testing.assert_allclose(knots_at_quantiles(y, m), np.percentile(y, [0, *expected, 100]))


def test_few_distinct_times_fall_back_to_fewer_knots() -> None:
    log_time = torch.tensor([[0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 1.0], [0.5, 0.5, 0.5, 0.5]]).double()
    ones = torch.ones_like(log_time)
    with pytest.warns(DataWarning, match=r"4 internal knots: fewer are used in 2 of 3 sets"):
        family = Spline("odds", knots=4).prepare(log_time, ones, ones, torch.zeros(3).double())
    shape = torch.randn(3, 1, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.linspace(-6, 8, 300, dtype=torch.float64).expand(3, -1)
    hazard, log_hazard = family.terms(y, torch.zeros(3, 1).double(), shape)
    assert (hazard.diff(dim=-1) >= 0).all()
    assert log_hazard.isfinite().all()
    # One event time leaves a straight line; the other weights have no effect.
    assert (family.basis(y)[2, 1:5] == 0).all()


def test_crowded_events_still_give_curves_that_fall_in_single_precision() -> None:
    """Half of the events within a hair of each other: knots closer than 1e-4 of the range count as one."""
    crowd = 0.3 + 1e-6 * torch.arange(20).double()
    log_time = torch.cat([crowd, torch.linspace(-2, 2, 20).double()])[None]
    ones = torch.ones_like(log_time)
    with pytest.warns(DataWarning, match="fewer are used"):
        family = Spline("hazard", knots=6).prepare(log_time, ones, ones, torch.zeros(1).double())
    assert (family.ends.diff(dim=-1)[family.ends.diff(dim=-1) > 0] > 1e-4).all()
    y, shape = torch.linspace(0.29, 0.31, 4001)[None], 3 * torch.randn(1, 1, 7, generator=torch.Generator())
    hazard = family.float().cumulative_hazard(y, torch.zeros(1, 1), shape)
    assert (hazard.diff(dim=-1) >= -1e-6 * shape.exp().max()).all()  # rounding of the largest term


@pytest.mark.parametrize(
    ("family", "text"),
    [
        (Spline("odds", knots=[5.0, 20.0, 80.0]), "knots at t = 5, 20, 80"),
        (PiecewiseExponential([15.0, 60.0]), "breakpoints at t = 15, 60"),
        (LogisticHazard([1.0, 4.0]), "intervals that end at t = 1, 4"),
    ],
)
def test_given_times_are_in_original_units(family: HazardFamily, text: str) -> None:
    log_time = torch.linspace(-1, 1, 20).double()[None]
    ones, scale = torch.ones_like(log_time), torch.tensor([math.log(30.0)]).double()
    own = family.prepare(log_time, ones, ones, scale).select(0)
    assert own.describe(30.0) == text
    given = [float(time) for time in text.split("= ")[1].split(", ")]
    np.testing.assert_allclose(own.corners().exp().unique() * 30, given)


# ------------------------------------------------------------------ the registry


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_family("gamma"), "unknown leaf 'gamma'; known leaves: exponential, generalized_gamma"),
        (lambda: make_family("weibull", knots=2), "'weibull' has the options ancillary: .*knots"),
        (lambda: make_family(Weibull(), ancillary="linear"), "takes no options"),
        (lambda: Weibull(ancillary="quadratic"), "ancillary must be"),
        (lambda: Spline("log"), "scale must be"),
        (lambda: Spline(knots=-1), "knots must be"),
        (lambda: LogisticHazard(0), "times must be a number"),
        (lambda: PiecewiseExponential([2.0, 1.0]), "in increasing order"),
        (lambda: PiecewiseExponential([2.0, math.inf]), "in increasing order"),
        (lambda: PiecewiseExponential([True, 2.0]), "breakpoints must be"),
        (lambda: SoftTree(1, 0, Spline().expand((3,)), batch_shape=(2,)), "asked for batch"),
        (lambda: register_family(Clash), "there is a leaf 'weibull' already"),
    ],
)
def test_bad_options_raise(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


class Clash(Exponential):
    name = "weibull"


def test_numbers_and_arrays_place_knots_and_breakpoints() -> None:
    assert Spline(knots=np.int64(3)).n_internal == 3
    assert Spline(knots=np.array([1.0, 2.0, 5.0])).knots == (1.0, 2.0, 5.0)
    assert PiecewiseExponential(np.array([1, 4])).breakpoints == (1.0, 4.0)
    assert repr(Spline("normal")) == "Spline('normal', knots=2, ancillary='constant')"


# ------------------------------------------------------------------ grouped times


def _grouped_rows() -> tuple[Tensor, Tensor, Tensor]:
    """Whole years 1 to 6 of two splits, the second without an event in the last two; unit 2 years."""
    generator = torch.Generator().manual_seed(4)
    time = torch.randint(1, 7, (2, 80), generator=generator).double()
    event = (torch.rand(2, 80, generator=generator) < 0.6).double()
    event[1, time[1] > 4] = 0
    return (time / 2).log(), event, torch.ones(2, 80).double()


def test_intervals_end_at_the_times_of_events() -> None:
    rows, scale = _grouped_rows(), torch.tensor([2.0, 2.0]).double().log()
    family = LogisticHazard().prepare(*rows, scale)
    assert family.options()["times"] == 30  # what was asked for
    # A life table is maximum likelihood where all times are at ends; its log odds are limited.
    logits = family.start(*rows)[1].requires_grad_()
    loss = family.loss(LogTimes(*rows[:2]), torch.zeros(2, 1).double(), logits[:, None])
    (slope,) = torch.autograd.grad(loss.mean(-1).sum(), logits)
    assert slope.abs().max() < 1e-7
    assert logits.min() == -16.0
    assert family.shape_names[-2:] == ("log_odds_6", "log_odds_beyond")
    expected = torch.tensor([[1.0, 2, 3, 4, 5, 6], [1.0, 2, 3, 4, 4, 4]]).double() / 2
    torch.testing.assert_close(family.ends.exp(), expected)
    assert family.select(1).describe(2.0) == "intervals that end at t = 1, 2, 3, 4"
    assert LogisticHazard(3).prepare(*rows, scale).ends.shape == (2, 3)


def test_grouped_likelihood_and_interpolation_against_pycox() -> None:
    from pycox.models import interpolation, loss
    from pycox.models.utils import pad_col

    y, event, weight = _grouped_rows()
    y, event, weight = y[:1], event[:1], weight[:1]
    unit = torch.zeros(1).double()
    family = LogisticHazard().prepare(y, event, weight, unit)
    shape = torch.randn(1, 1, 7, generator=torch.Generator().manual_seed(0)).double()
    linear = 0.3 * torch.randn(1, 80, generator=torch.Generator().manual_seed(1)).double()
    place = (y[0].exp() * 2).round().long() - 1
    logits = linear[0][:, None] + shape[0, :, :6]
    theirs = loss.nll_logistic_hazard(logits, place, event[0], reduction="none")
    # A density has the length of the interval, half a unit, in its denominator.
    mine = family.loss(LogTimes(y, event), linear, shape) - event * math.log(0.5)
    torch.testing.assert_close(mine[0], theirs)

    class Curves:
        duration_index = np.r_[0.0, family.ends[0].exp().numpy()]

        def predict_surv(self, logits: Tensor, *_: object, **__: object) -> Tensor:
            return pad_col((1 - logits.sigmoid()).cumprod(1), 1.0, "start")

    between = interpolation.InterpolateDiscrete(Curves(), "const_pdf", Curves.duration_index, sub=5)
    theirs_at = between.predict_surv(logits, numpy=False)
    t = torch.linspace(0, 3, theirs_at.shape[1], dtype=torch.float64)
    mine_at = family.survival(t[1:].log(), linear[0][:, None], shape[0])
    torch.testing.assert_close(mine_at, theirs_at[:, 1:].double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("scale", "rows"), [(60.0, "at ends"), (2000.0, "beyond")])
def test_loss_of_many_intervals_and_its_gradient_agree_with_autograd(scale: float, rows: str) -> None:
    generator = torch.Generator().manual_seed(3)
    ones, unit = torch.ones(1, 3).double(), torch.zeros(1).double()
    family = LogisticHazard([*range(1, 21)]).prepare(0 * ones, ones, ones, unit)
    time = torch.randint(1, 21, (1, 1, 40), generator=generator).double()
    if rows == "beyond":
        time = time + 4.0 - torch.rand(1, 1, 40, generator=generator).double()
    event = (torch.rand(1, 1, 40, generator=generator) < 0.6).double()
    linear = scale * torch.randn(1, 2, 40, generator=generator).double()
    shape = torch.randn(1, 2, 1, 21, generator=generator).double()
    times = LogTimes(time.log(), event)
    found = family.derivatives(times, linear, shape, second=False)[:2]
    expected = HazardFamily.derivatives(family, times, linear, shape, second=False)[:2]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_a_time_next_to_an_end_is_at_the_end() -> None:
    ones = torch.ones(1, 3).double()
    family = LogisticHazard([1.0, 2.0]).prepare(0 * ones, 0 * ones, ones, torch.zeros(1).double())
    shape, linear = torch.tensor([[[0.5, -0.5, -3.0]]]).double(), torch.zeros(1, 1).double()
    for end in (1.0, 2.0):
        times = torch.tensor([[end, end * (1 - 1e-12), end * (1 + 1e-12)]]).double().log()
        for part in family.terms(times, linear, shape):
            torch.testing.assert_close(part, part[:, :1].expand(1, 3), rtol=1e-10, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_events_at_breakpoints_belong_to_the_interval_that_ends_there(dtype: torch.dtype) -> None:
    # A batch of families, each with an event at its breakpoint.
    log_time = torch.linspace(-4.0, 4.0, 301, dtype=dtype)[:, None]
    ones, unit = torch.ones_like(log_time), torch.zeros(301, dtype=dtype)
    family = PiecewiseExponential(1).prepare(log_time, ones, ones, unit)
    shape, linear = ones[..., None], torch.zeros_like(log_time)
    for nearby in (log_time, torch.nextafter(log_time, log_time + 1)):
        assert (family.terms(nearby, linear, shape)[1] == 0.0).all()
    assert (family.terms(log_time + 1e-4, linear, shape)[1] == 1.0).all()


def test_a_closed_log_hazard_of_a_user_is_used() -> None:
    class Steep(HazardFamily):
        name, shape_names = "steep", ("log_a",)

        def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
            return torch.exp((log_time - linear) * shape[..., 0].exp())

        def log_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
            return shape[..., 0] + (log_time - linear) * shape[..., 0].exp() - log_time

    early = torch.full((1, 1), -800.0, dtype=torch.float64)  # where the derivative of H underflows
    zero, shape = torch.zeros_like(early), torch.full((1, 1, 1), math.log(2.0), dtype=torch.float64)
    loss = Steep().loss(LogTimes(early, torch.ones_like(early)), zero, shape)
    torch.testing.assert_close(loss, -(math.log(2.0) + early))
