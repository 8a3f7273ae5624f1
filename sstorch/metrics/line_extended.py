"""The Kaplan-Meier curve that errors of predicted times average over."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sstorch.metrics.checks import BoolArray, FloatArray
from sstorch.metrics.risk_sets import risk_sets


class LineExtendedKaplanMeier:
    """Kaplan-Meier, beyond its last time continued along the line from (0, 1) through its last point to 0.

    Args:
        time: observed times, shape (n,), checked.
        event: event indicators, shape (n,), with an event at a time > 0, so that the line falls.
    """

    def __init__(self, time: FloatArray, event: BoolArray) -> None:
        distinct, _, n_events, _, at_risk = risk_sets(time, event)
        self.nodes: FloatArray = np.concatenate(([0.0], distinct))  # S is constant from each to the next
        self.steps: FloatArray = _product_limit(n_events, at_risk)
        self.steps_with_one_more: FloatArray = _product_limit(n_events, at_risk + 1)

    def at(self, t: FloatArray) -> FloatArray:
        """S(t), the shape of t."""
        step = self.steps[np.searchsorted(self.nodes, t, side="right") - 1]
        last, value = self.nodes[-1], self.steps[-1]
        line = np.maximum(1.0 - t * (1.0 - value) / last, 0.0)
        value_at: FloatArray = np.where(t > last, line, step)
        return value_at

    def area_from(self, t: FloatArray) -> FloatArray:
        """Integral of S from t on."""
        last, value = self.nodes[-1], self.steps[-1]
        inner = np.minimum(t, last)
        whole = _step_area(self.nodes, self.steps, np.array([last]))[0]
        steps = whole - _step_area(self.nodes, self.steps, inner)
        triangle = _triangle(last, value)
        slope = (1.0 - value) / last
        area: FloatArray = np.where(t > last, self.at(t) ** 2 / (2.0 * slope), steps + triangle)
        return area

    def mean(self) -> float:
        """Area under the curve."""
        return float(self.area_from(np.zeros(1))[0])

    def mean_with_censored(self, c: FloatArray) -> FloatArray:
        """Mean of the curve of the same rows and one more that is censored at c, for each c."""
        position = np.searchsorted(self.nodes, c, side="right") - 1
        last = self.nodes[-1]
        before = _step_area(self.nodes, self.steps_with_one_more, c)
        at_c, own = self.steps_with_one_more[position], self.steps[position]
        lift = np.divide(at_c, own, out=np.zeros_like(own), where=own > 0.0)
        whole = _step_area(self.nodes, self.steps, np.array([last]))[0]
        after = np.maximum(whole - _step_area(self.nodes, self.steps, np.minimum(c, last)), 0.0)
        final = np.where(c >= last, at_c, lift * self.steps[-1])
        mean: FloatArray = before + lift * after + _triangle(np.maximum(c, last), final)
        return mean


def _product_limit(n_events: npt.NDArray[Any], at_risk: npt.NDArray[Any]) -> FloatArray:
    curve: FloatArray = np.cumprod(np.concatenate(([1.0], 1.0 - n_events / at_risk)), dtype=np.float64)
    return curve


def _step_area(nodes: FloatArray, steps: FloatArray, t: FloatArray) -> FloatArray:
    """Integral from 0 to t of the step function that is steps[k] from nodes[k] on."""
    running = np.concatenate(([0.0], np.cumsum(np.diff(nodes) * steps[:-1])))
    position = np.searchsorted(nodes, t, side="right") - 1
    area: FloatArray = running[position] + steps[position] * (t - nodes[position])
    return area


def _triangle(last: float | FloatArray, value: float | FloatArray) -> FloatArray:
    """Area under the line from (0, 1) through (last, value), from last on."""
    area: FloatArray = np.asarray(value**2 * last / (2.0 * (1.0 - value)))
    return area
