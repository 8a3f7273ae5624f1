"""Local linear regression, the smoother behind calibration curves."""

import numpy as np

from sstorch.metrics.checks import FloatArray, check_share


def local_linear(
    x: FloatArray, y: FloatArray, points: FloatArray, span: float
) -> tuple[FloatArray, FloatArray]:
    """Smooth y over x at some points, with the standard error of the smooth value.

    Around each point the ceil(span n) nearest rows get tricube weights and a straight line. Where they do not
    vary in x, as with few distinct predictions, the line is level.

    Args:
        x: shape (n,), finite.
        y: shape (n,), finite.
        points: where the curve is wanted, within the range of x and increasing, shape (m,).
        span: share of the rows, in (0, 1].

    Returns:
        The curve and its standard errors, each (m,): with l the row of the smoother matrix at the point and e
        the residuals from the curve (straight between the points), the error is sqrt(sum l^2 e^2).

    Raises:
        ConfigError: a span out of range.

    References:
        Cleveland (1979), Journal of the American Statistical Association 74, 829-836.
    """
    check_share(span, "span", "a share of the rows in (0, 1]", closed=True)
    nearest = min(x.size, int(np.ceil(span * x.size)))
    smoother = [_weights_at(x, point, nearest) for point in points]
    curve = np.array([row @ y for row in smoother])
    square = (y - np.interp(x, points, curve)) ** 2
    error = np.sqrt(np.array([row**2 @ square for row in smoother]))
    return curve, error


def _weights_at(x: FloatArray, point: float, nearest: int) -> FloatArray:
    """The weights with which the rows enter the smooth value at the point, shape (n,), sum 1."""
    offset = x - point
    distance = np.abs(offset)
    radius = np.partition(distance, nearest - 1)[nearest - 1]
    if radius == 0.0:  # the point itself holds as many rows as are wanted
        weight = (distance == 0.0).astype(np.float64)
    else:
        weight = np.clip(1.0 - (distance / radius) ** 3, 0.0, None) ** 3
    mass = weight.sum()
    mean = (weight @ offset) / mass
    spread = weight @ (offset - mean) ** 2
    if spread <= 1e-12 * mass * max(radius, np.finfo(np.float64).tiny) ** 2:
        level: FloatArray = weight / mass
        return level
    tilted: FloatArray = weight * (1.0 / mass - mean * (offset - mean) / spread)
    return tilted
