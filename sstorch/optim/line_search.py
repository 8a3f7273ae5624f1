"""Strong Wolfe line searches for a batch of problems, one trial step at a time.

The bracket is that of Nocedal and Wright (2006), Numerical Optimization, algorithms 3.5 and 3.6, written as
one rule: `low` is the best acceptable point so far, `high` the other end of an interval that holds a point
fulfilling the strong Wolfe conditions, infinite until one is known. Where the decrease drowns in the rounding
error of the value, slopes alone decide, by the approximate Wolfe conditions of Hager and Zhang (2005), SIAM
Journal on Optimization 16(1), 170-192.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.batched import Batched

# A point on a line is a triple in the last dimension.
STEP, VALUE, SLOPE = 0, 1, 2

# Sufficient decrease (Armijo), the share to which a slope must shrink (strong Wolfe), and trials a search.
C1, C2, MAX_TRIALS = 1e-4, 0.9, 20
# Next trial as a fraction of the bracket [low, high], and, without one, as a multiple of the last extension.
_ZOOM = (0.1, 0.9)
_EXTEND = (2.1, 5.0)


def rounding_error(value: Tensor) -> Tensor:
    """A change of values (K,) that may be rounding alone: ten units in the last place of max(|value|, 1)."""
    return value.abs().clamp(min=1.0) * (10.0 * torch.finfo(value.dtype).eps)


@dataclass
class LineSearch(Batched):
    """State of K line searches."""

    origin: Tensor  # (K, 3), step 0, with the value and the (negative) slope there
    low: Tensor  # (K, 3), the best acceptable point so far, at first the origin
    high: Tensor  # (K, 3), the other end of the bracket; step infinite for none, value where it is not finite
    step: Tensor  # (K,), the trial to be evaluated next
    n_trials: Tensor  # (K,) int64, trials answered so far

    @classmethod
    def start(cls, value: Tensor, slope: Tensor) -> LineSearch:
        """Begin at step zero, with values (K,) and negative slopes (K,) there; the first trial is at 1."""
        origin = torch.stack((torch.zeros_like(value), value, slope), dim=-1)
        high = torch.full_like(origin, torch.inf)
        return cls(origin, origin, high, torch.ones_like(value), torch.zeros_like(value, dtype=torch.int64))

    def restart(self, problems: Tensor, value: Tensor, slope: Tensor) -> LineSearch:
        """Begin again where `problems` (K,) is true, from `value` (K,) and `slope` (K,) at step zero."""
        new, column = LineSearch.start(value, slope), problems[:, None]
        points = ((new.origin, self.origin), (new.low, self.low), (new.high, self.high))
        step, n_trials = (new.step, self.step), (new.n_trials, self.n_trials)
        return LineSearch(
            *(torch.where(column, *pair) for pair in points),
            *(torch.where(problems, *pair) for pair in (step, n_trials)),
        )

    def advance(self, value: Tensor, slope: Tensor) -> tuple[LineSearch, Tensor, Tensor]:
        """Take values (K,), +inf if not finite, and slopes (K,) at `step`, and choose the next trials.

        Also where the trial became `low`, (K,), and where it ends the search by the Wolfe conditions, (K,).
        """
        trial = torch.stack((self.step, value, slope), dim=-1)
        _, value0, slope0 = self.origin.unbind(-1)
        noise = rounding_error(value0)
        rise = value - value0

        decreased = rise <= C1 * self.step * slope0
        flat = rise.abs() <= noise
        accepted = (decreased | (flat & (slope <= (2.0 * C1 - 1.0) * slope0))) & (slope.abs() <= -C2 * slope0)
        # Written so that nan is not an improvement.
        improved = accepted | ((decreased | flat) & (value <= self.low[:, VALUE] + noise))

        # An improved trial whose slope points back to `low` has the minimum between the two.
        crossed = improved & (slope * (self.high[:, STEP] - self.low[:, STEP]) >= 0)
        low = torch.where(improved[:, None], trial, self.low)
        high = torch.where(crossed[:, None], self.low, self.high)
        high = torch.where(improved[:, None], high, trial)

        # Interpolate inside the bracket, or else extrapolate from the two latest points.
        bracketed = torch.isfinite(high[:, STEP])
        start = torch.where(bracketed[:, None], low, self.low)
        end = torch.where(bracketed[:, None], high, trial)
        fraction = _cubic_minimum(start, end, noise)
        inside = fraction.nan_to_num(0.5).clamp(*_ZOOM)
        beyond = torch.where(fraction > 1.0, fraction, _EXTEND[1]).clamp(*_EXTEND)
        step = torch.lerp(start[:, STEP], end[:, STEP], torch.where(bracketed, inside, beyond))
        return LineSearch(self.origin, low, high, step, self.n_trials + 1), improved, accepted


def _cubic_minimum(start: Tensor, end: Tensor, noise: Tensor) -> Tensor:
    """Share (K,) of the way to the minimum of the cubic, nan for none; of the secant within `noise` (K,)."""
    width, rise, _ = (end - start).unbind(-1)
    slope0, slope1 = start[:, SLOPE] * width, end[:, SLOPE] * width
    rise = torch.where(rise.abs() <= noise, 0.5 * (slope0 + slope1), rise)
    a = slope0 + slope1 - 3.0 * rise
    b = torch.sqrt(a * a - slope0 * slope1)
    return 1.0 - (slope1 + b - a) / (slope1 - slope0 + 2.0 * b)
