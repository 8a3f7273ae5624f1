"""Sample size for developing a survival model."""

import math
from dataclasses import dataclass
from numbers import Real

from sstorch.checks import check_horizon, check_integer, check_share, is_number_of
from sstorch.exceptions import ConfigError

# Of the interval of the overall risk, two-sided 95 %, rounded as it is printed with the criteria.
_NORMAL = 1.96


@dataclass(frozen=True)
class SampleSize:
    """Result of `sample_size`: rows required by each criterion, and properties of the largest.

    Attributes:
        n_shrinkage: rows for little overfitting.
        n_optimism: rows for little optimism in R2.
        n_risk: rows for a precise overall risk.
        n: the largest of them.
        n_events: events among n rows, rounded up.
        events_per_parameter: events over parameters.
        r2: R2 of Cox and Snell, given or derived from the concordance.
        max_r2: largest possible R2.
        risk: overall risk by t.
        risk_lower: lower 95 % confidence limit of the risk with n rows.
        risk_upper: upper 95 % confidence limit.
    """

    n_shrinkage: int
    n_optimism: int
    n_risk: int
    n: int
    n_events: int
    events_per_parameter: float
    r2: float
    max_r2: float
    risk: float
    risk_lower: float
    risk_upper: float


def sample_size(
    n_parameters: int,
    r2: float | None = None,
    *,
    concordance: float | None = None,
    event_rate: float,
    mean_follow_up: float,
    t: float,
    shrinkage: float = 0.9,
    optimism: float = 0.05,
    margin: float = 0.05,
) -> SampleSize:
    """Compute the sample size for developing a survival model, by the criteria of Riley et al.

    With p parameters, shrinkage factor S and R2 of Cox and Snell:

    * shrinkage: n = p / ((S - 1) log(1 - R2 / S)), S as given.
    * optimism: the same with S = R2 / (R2 + optimism max R2), so that the apparent R2 of Nagelkerke exceeds
      the true R2 by at most `optimism`. max R2 = 1 - exp(2 (q log q - q)), q = rate x follow-up, the events
      per row (equation 23 of the paper).
    * risk: the 95 % confidence limits of the risk by t, 1 - exp(-rate t) at rate +- 1.96 sqrt(rate /
      (n follow-up)), are at most `margin` away.

    Args:
        n_parameters: number of candidate parameters: columns, levels beyond the first, additional spline
            terms, including candidates that are not selected.
        r2: expected R2 of Cox and Snell, adjusted for optimism, for example from an earlier model; or
        concordance: Harrell's concordance, in (0.5, 1), converted to R2 by Royston's D. In simulated Cox
            models with normal scores this R2 is 7 to 25 % too low, so that n is larger.
        event_rate: events per unit of time and row.
        mean_follow_up: mean time under observation, in the same unit.
        t: time of the prediction, in the same unit.
        shrinkage: smallest acceptable shrinkage factor, in (0, 1).
        optimism: largest difference of R2, in (0, 1).
        margin: largest distance of a limit from the overall risk, in (0, 1).

    Raises:
        ConfigError: a number out of range, both or neither of R2 and concordance, or an R2 that the event
            rate does not allow.

    References:
        Riley, Snell, Ensor, Burke, Harrell, Moons and Collins (2019), Statistics in Medicine 38, 1276-1296;
        Riley et al. (2020), BMJ 368, m441. Their third criterion uses the upper limit, here both limits.
        Jinks, Royston and Parmar (2015), BMC Medical Research Methodology 15, 82, for D.

    Examples:
        Recurrent venous thromboembolism, of the paper in the BMJ:

        >>> size = sample_size(30, 0.051, event_rate=0.065, mean_follow_up=2.07, t=2)
        >>> size.n, size.n_events, round(size.events_per_parameter, 2)
        (5143, 692, 23.07)
        >>> size = sample_size(30, concordance=0.7, event_rate=0.065, mean_follow_up=2.07, t=2)
        >>> size.n, round(size.r2, 3)
        (4573, 0.057)
    """
    p = check_integer("n_parameters", n_parameters, 1)
    follow_up, horizon = check_horizon(mean_follow_up, "mean_follow_up"), check_horizon(t, "t")
    if not is_number_of(event_rate, Real) or not 0.0 < event_rate < math.inf:
        raise ConfigError(f"event_rate must be events per unit of time, a number > 0, got {event_rate!r}.")
    events_per_row = event_rate * follow_up
    if (r2 is None) == (concordance is None):
        got = "neither" if r2 is None else "both"
        raise ConfigError(f"give either r2 or concordance, got {got}.")
    if r2 is None:
        r2 = _r2_of(concordance, events_per_row)
    for name, share in (("r2", r2), ("shrinkage", shrinkage), ("optimism", optimism), ("margin", margin)):
        check_share(share, name)
    max_r2 = -math.expm1(2.0 * (events_per_row * math.log(events_per_row) - events_per_row))
    if r2 >= min(max_r2, shrinkage):
        raise ConfigError(
            f"r2 must be an R2 of Cox and Snell below {min(max_r2, shrinkage):.3g}, as far as event_rate, "
            f"mean_follow_up and shrinkage allow, got {r2:g}. Is it that of Nagelkerke?"
        )

    def n_for(factor: float) -> int:
        return math.ceil(p / ((factor - 1.0) * math.log1p(-r2 / factor)))

    n_shrinkage, n_optimism = n_for(shrinkage), n_for(r2 / (r2 + optimism * max_r2))
    n_risk = _rows_for_risk(event_rate, follow_up, horizon, margin)
    n = max(n_shrinkage, n_optimism, n_risk)
    half = _NORMAL * math.sqrt(event_rate / (n * follow_up))
    rates = (event_rate, max(event_rate - half, 0.0), event_rate + half)
    risk, lower, upper = (-math.expm1(-rate * horizon) for rate in rates)
    n_events = n * events_per_row
    return SampleSize(
        n_shrinkage, n_optimism, n_risk, n, math.ceil(n_events), n_events / p, r2, max_r2, risk, lower, upper
    )


def _r2_of(concordance: float | None, events_per_row: float) -> float:
    """R2 of Cox and Snell: from concordance to D, to the R2 of Royston and Sauerbrei, to O'Quigley's."""
    if not is_number_of(concordance, Real) or concordance is None or not 0.5 < concordance < 1.0:
        raise ConfigError(f"concordance must be a number in (0.5, 1), got {concordance!r}.")
    above = concordance - 0.5
    d = 5.50 * above + 10.26 * above**3
    explained, noise = math.pi / 8.0 * d * d, math.pi**2 / 6.0
    share = explained / (noise + explained)
    of_events = noise * share / (1.0 - (1.0 - noise) * share)
    return -math.expm1(events_per_row * math.log1p(-of_events))


def _rows_for_risk(rate: float, follow_up: float, t: float, margin: float) -> int:
    """Rows with which both limits of the risk by t are within the margin.

    A rate that is off by d moves the risk by exp(-rate t) |1 - exp(-+ d t)|, further below than above, but
    never below a risk of 0.
    """
    scaled = margin * math.exp(rate * t)
    if -math.expm1(-rate * t) > margin:
        off = math.log1p(scaled) / t
    elif scaled < 1.0:
        off = -math.log1p(-scaled) / t
    else:
        return 1
    return math.ceil(_NORMAL**2 * rate / (follow_up * off**2))
