"""How long rows were followed."""

import math

from sstorch.metrics.groups import Estimate, KaplanMeierBand
from sstorch.metrics.outcome import Outcome, read_rows


def median_follow_up(y: Outcome) -> Estimate[float]:
    """Median follow-up by reverse Kaplan-Meier with 95 % confidence limits.

    Args:
        y: outcome of the rows, of any cause, with weights and entry times (left truncation). A start-stop row
            that a later one of its subject continues does not end the follow-up.

    Returns:
        The median and its limits in the unit of `y`, infinite if not reached.

    Raises:
        DataError: an invalid outcome.

    References:
        Schemper and Smith (1996), Controlled Clinical Trials 17, 343-346.

    Examples:
        >>> median_follow_up(([1, 2, 3, 4, 5, 6], [1, 0, 0, 1, 0, 0])).value
        5.0
    """
    rows = read_rows(y, "the median follow-up", entry=True, weight=True)
    lost = rows.ends & ~rows.event
    if not lost.any():
        return Estimate(math.inf, math.inf, math.inf)
    return Estimate(*(float(part) for part in KaplanMeierBand.fit(rows._replace(event=lost)).quantile()))
