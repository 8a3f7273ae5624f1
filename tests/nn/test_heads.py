"""Heads of networks: starting values, routers, state, torch's conventions."""

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

from sstorch import SurvivalData
from sstorch.data import Preprocessor, Schema
from sstorch.exceptions import ConfigError, DataError
from sstorch.nn import FAMILIES, HazardHead, LogisticHazard, SoftTree, Spline, make_family
from tests.conftest import devices, nightly_but

DRAWS = torch.Generator().manual_seed(5)
X = torch.rand(40, 3, generator=DRAWS)
TIME = (20 * torch.rand(40, generator=DRAWS) + 0.5).round(decimals=1)
EVENT = (torch.rand(40, generator=DRAWS) < 0.6).float()
WITH_CONSTANTS = [name for name in sorted(FAMILIES) if not make_family(name).prepared]


def experts(n_leaves: int = 5) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, n_leaves), nn.LogSoftmax(-1))


# ------------------------------------------------------------------ starting values


@pytest.mark.parametrize("leaf", nightly_but(set(FAMILIES) - {"generalized_gamma"}, sorted(FAMILIES)))
def test_initialize_sets_unit_constants_and_maximum_likelihood(leaf: str) -> None:
    weight, entry = torch.rand(40, generator=DRAWS) + 0.5, 0.3 * TIME
    rows = X.double(), TIME.double(), EVENT.double()
    for given in ({}, {"weight": weight, "entry": entry}):
        head = HazardHead(3, leaf, 2, dtype=torch.float64)
        slope = head.leaf.slope.detach().clone()
        assert head.initialize(TIME, EVENT, **given) is head
        counted = given.get("weight", torch.ones(40)).double()
        unit = ((counted * rows[1].log()).sum() / counted.sum()).exp()
        torch.testing.assert_close(head.log_time_scale.exp(), unit)
        assert torch.equal(head.leaf.slope, slope)
        with torch.no_grad():
            head.leaf.slope.zero_()
        loss = head(rows[0]).nll(*rows[1:], **given)
        free = [part for part in (head.leaf.intercept, head.leaf.shape) if part.numel()]
        # Both components are the same. Of some the likelihood has no maximum, or theta starts at 1.
        slopes = [part.sum(0).abs().max() for part in torch.autograd.grad(loss, free)]
        assert max(slopes) < 1e-6 or leaf in ("logistic_hazard", "generalized_gamma", "spline")
        with torch.no_grad():
            for part in free:
                part.zero_()
        assert loss < head(rows[0]).nll(*rows[1:], **given)


def test_rows_without_follow_up_determine_nothing() -> None:
    time = torch.cat([TIME, torch.zeros(3)])
    event = torch.cat([EVENT, torch.zeros(3)])
    more, fewer = (HazardHead(3).initialize(*rows) for rows in ((time, event), (TIME, EVENT)))
    assert torch.equal(more.leaf.intercept, fewer.leaf.intercept)
    assert torch.equal(more.log_time_scale, fewer.log_time_scale)


def test_times_in_days_are_those_in_years() -> None:
    years = HazardHead(3, "spline_po", dtype=torch.float64).initialize(TIME, EVENT)
    days = copy.deepcopy(years).initialize(TIME.double() * 365.25, EVENT)
    x, t = X.double(), torch.tensor([1.0, 4.0]).double()
    torch.testing.assert_close(days(x).survival(t * 365.25), years(x).survival(t))
    difference = (days(x).nll(TIME.double() * 365.25, EVENT) - years(x).nll(TIME.double(), EVENT)).detach()
    assert float(difference) == pytest.approx(float(EVENT.mean()) * math.log(365.25), rel=1e-6)


@pytest.mark.parametrize("leaf", WITH_CONSTANTS)
def test_a_family_without_its_constants_raises(leaf: str) -> None:
    for module in (HazardHead(3, leaf), SoftTree(3, 1, leaf), SoftTree(3, family=leaf, router=experts())):
        with pytest.raises(ConfigError, match=r"must have constants of training rows.*call initialize\(time"):
            module(X)
        assert module.initialize(TIME, EVENT)(X).nll(TIME, EVENT).isfinite()


@pytest.mark.parametrize("leaf", WITH_CONSTANTS)
def test_state_of_an_initialized_module_loads_into_a_fresh_one(leaf: str) -> None:
    makers = (
        lambda: HazardHead(3, leaf, 2),
        lambda: SoftTree(3, 1, leaf, batch_shape=(4,)),
        lambda: SoftTree(3, 1, make_family(leaf, ancillary="linear")),
        lambda: SoftTree(3, 1, leaf, router=experts(2)),
    )
    for make in makers:
        source, target = make().initialize(TIME, EVENT), make()
        target.load_state_dict(source.state_dict())
        assert torch.equal(target(X).survival(TIME[:, None]), source(X).survival(TIME[:, None]))
        family = make_family(leaf)
        family.load_state_dict(source.family.state_dict())
        assert family.prepared
        assert family.shape_names == source.family.shape_names
        assert family.batch_shape == source.family.batch_shape
    with pytest.raises(RuntimeError, match="size mismatch"):
        HazardHead(4, leaf, 2).load_state_dict(HazardHead(3, leaf, 2).initialize(TIME, EVENT).state_dict())


def test_state_of_other_options_raises() -> None:
    with pytest.raises(RuntimeError, match="size mismatch"):
        Spline(knots=4).load_state_dict(Spline(knots=2).state_dict())


def test_an_optimizer_made_before_initialize_keeps_its_parameters() -> None:
    head = HazardHead(3, LogisticHazard(times=100, ancillary="linear"))
    optimizer = torch.optim.SGD(head.parameters(), 0.1)
    head.initialize(TIME, EVENT)
    n_shape = len(head.family.shape_names)
    assert n_shape == len(TIME[EVENT > 0].unique()) + 1
    assert head.leaf.shape.shape == (1, n_shape)
    before = head(X).nll(TIME, EVENT)
    before.backward()
    optimizer.step()
    assert head(X).nll(TIME, EVENT) < before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"time": TIME, "event": EVENT, "entry": TIME}, "`time` must be above 0 and `entry` in some row"),
        ({"time": TIME, "event": EVENT, "weight": 0 * TIME}, "in some row with weight"),
        ({"time": TIME, "event": EVENT[:3]}, r"`event` must have one value a row, like `time`, got \(3,\)"),
        ({"time": -TIME, "event": EVENT}, "`time` must be finite and at least 0, got -"),
        ({"time": TIME, "event": 2 * EVENT}, "`event` must be 0 or 1, got 2 at position"),
        ({"time": TIME, "event": EVENT * math.nan}, "`event` must be finite"),
    ],
)
def test_rows_that_determine_nothing_raise(given: dict[str, Tensor], message: str) -> None:
    with pytest.raises(DataError, match=message):
        HazardHead(3).initialize(**given)


def test_gates_leave_their_random_starting_values(gbsg2: SurvivalData) -> None:
    features = Preprocessor(Schema.of(gbsg2.frame)).fit(gbsg2.frame).transform(gbsg2.frame)
    x, time, event = (torch.as_tensor(part).float() for part in (features, gbsg2.time, gbsg2.event))
    losses = []
    for start in ("random", "zeros"):
        torch.manual_seed(0)
        tree = SoftTree(x.shape[1], start=start).initialize(time, event)
        tree.gates.requires_grad_(start == "random")  # rounding may move those at the saddle
        optimizer = torch.optim.Adam(tree.parameters(), 0.02)
        for _ in range(60):
            optimizer.zero_grad()
            loss = tree(x).nll(time, event)
            loss.backward()
            optimizer.step()
        losses.append(float(loss.detach()))
        assert tree.gate_parameters().weight.norm(dim=-1).min() > 1.0 or start == "zeros"
    assert losses[0] < losses[1] - 0.01


# ------------------------------------------------------------------ routers


def test_leaves_of_a_router_are_as_many_as_its_weights() -> None:
    router = experts()
    tree = SoftTree(3, family="weibull", router=router).initialize(TIME, EVENT)
    rows = tree(X)
    assert rows.n_components == len(tree.leaves) == 5
    torch.testing.assert_close(rows.log_weight, router(X).mT)
    assert torch.equal(tree.apply_leaf(X), router(X).argmax(-1))
    chosen = tree(X).most_probable()
    leaf = router(X).argmax(-1)
    assert torch.equal(chosen.linear[0], rows.linear.gather(0, leaf[None])[0])
    # Logits without a softmax are the same.
    torch.testing.assert_close(
        SoftTree(3, family="weibull", router=router[:3])(X).log_weight, rows.log_weight
    )
    rows.nll(TIME, EVENT).backward()
    assert router[0].weight.grad.abs().max() > 1e-5
    batch = SoftTree(3, family="weibull", router=router, batch_shape=(2,))
    assert batch(X).survival(TIME[:, None]).shape == (2, 40, 1)
    assert "depth" not in repr(tree).splitlines()[1]


def test_a_router_keeps_its_parameters_and_statistics() -> None:
    router = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 4), nn.Dropout())
    before = copy.deepcopy(router.state_dict())
    tree = SoftTree(3, router=router)
    tree.reset_parameters()
    assert router.training
    assert all(torch.equal(value, before[name]) for name, value in router.state_dict().items())


def test_what_needs_linear_gates_refuses_a_router() -> None:
    tree = SoftTree(3, family="weibull", router=experts())
    for use in (tree.gate_parameters, lambda: tree.gate_logits(X), lambda: tree.select(0)):
        with pytest.raises(ConfigError, match="must have linear gates"):
            use()
    assert len(SoftTree(3, router=nn.Identity()).leaves) == 3
    for router in (nn.Flatten(0), nn.Unflatten(1, (3, 1))):
        with pytest.raises(ConfigError, match="`router` must map features"):
            SoftTree(3, router=router)


# ------------------------------------------------------------------ torch's conventions


def test_dtype_is_that_of_torch() -> None:
    assert SoftTree(3, 1, "spline_ph").leaf(2).slope.dtype == torch.float32
    assert HazardHead(3, "spline_ph").family.table.dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert SoftTree(3, 1).gate(1).weight.dtype == torch.float64
        assert HazardHead(3, n_components=2).gate.weight.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    for make in (lambda: SoftTree(3, 1, "weibull", (2,)), lambda: HazardHead(3, "weibull", 1, "cpu")):
        with pytest.raises(TypeError, match="positional"):
            make()


def test_modules_print_their_sizes() -> None:
    tree, head = repr(SoftTree(3, 1, "weibull", batch_shape=(2,))), repr(HazardHead(3, "weibull", 2))
    for text in ("in_features=3, depth=1, family=weibull, batch_shape=(2,)", "(1): Gate(in_features=3,"):
        assert text in tree
    assert "in_features=3, family=weibull, n_components=2" in head


@pytest.mark.parametrize("leaf", ["weibull", "logistic_hazard", "spline_po"])
def test_modules_are_copied_and_pickled(leaf: str) -> None:
    for module in (HazardHead(3, leaf, 2), SoftTree(3, 1, leaf, router=experts(2))):
        module.initialize(TIME, EVENT)
        loss = module(X).nll(TIME, EVENT)
        for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            assert torch.equal(other(X).nll(TIME, EVENT), loss)


def test_a_likelihood_under_autocast_keeps_its_digits() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), HazardHead(4, n_components=2))
    net[-1].initialize(TIME, EVENT)
    expected = net(X).nll(TIME, EVENT)
    with torch.autocast("cpu", torch.bfloat16):
        rows = net(X)
        assert rows.linear.dtype == torch.float32
        found = rows.nll(TIME, EVENT)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


@devices
def test_heads_on_every_device(device: str) -> None:
    head = HazardHead(3, "spline_po", 2).initialize(TIME, EVENT)
    there = HazardHead(3, "spline_po", 2, device=device).initialize(TIME.to(device), EVENT.to(device))
    there.load_state_dict(head.state_dict())
    found = there(X.to(device)).nll(TIME.to(device), EVENT.to(device))
    torch.testing.assert_close(found.cpu(), head(X).nll(TIME, EVENT), rtol=1e-5, atol=1e-6)
    assert there(X.to(device)).sample().device.type == device
