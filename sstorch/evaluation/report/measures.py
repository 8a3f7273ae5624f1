"""What the metrics of a study are called, which direction is better, and what of them can be averaged."""

from __future__ import annotations

from dataclasses import dataclass

from sstorch.metrics.evaluation import METRICS


@dataclass(frozen=True)
class Measure:
    """How a metric is reported.

    Attributes:
        name: in the results, such as "c_harrell".
        title: in print.
        short: in print, where there is little room.
        higher_is_better: direction; None where neither is.
        published: its name in the published tables, None where it has none there.
        averaged: whether a mean over data sets means something.
        rejection: whether the values are p-values, of which the share below .05 is reported.
    """

    name: str
    title: str
    short: str
    higher_is_better: bool | None
    published: str | None = None
    averaged: bool = True
    rejection: bool = False

    @property
    def direction(self) -> str:
        """The direction in words."""
        if self.higher_is_better is None:
            return "no direction"
        return "higher is better" if self.higher_is_better else "lower is better"


LEVEL = 0.05

_KNOWN = (
    Measure("c_harrell", "Concordance (Harrell, Antolini)", "C_H", True, "c_harrell"),
    Measure("c_uno", "Concordance (Uno)", "C_U", True, "c_uno"),
    Measure("cd_auc", "Mean cumulative/dynamic AUC", "AUC", True, "cd_auc"),
    Measure("ibs_graf", "Integrated Brier score (graf)", "IBS", False, "ibs"),
    Measure("ibs_sksurv", "Integrated Brier score (sksurv)", "IBS sksurv", False),
    Measure("ici", "Integrated calibration index", "ICI", False),
    Measure("d_calibration_p", "D-calibration: share of fits with p < .05", "D-cal.", None, rejection=True),
    Measure("log_likelihood", "Log-likelihood", "log L", True, averaged=False),
)
_BY_NAME = {measure.name: measure for measure in _KNOWN}

# Asked for by name only: a training objective says nothing across models.
_BY_REQUEST = frozenset({"objective"})


def measure(name: str) -> Measure:
    """How a metric is reported; one that is not known here has the direction that `evaluate` gives it."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name == "objective":
        return Measure(name, "Training objective", "objective", None, averaged=False)
    known = METRICS.get(name)
    return Measure(name, name, name, None if known is None else known.higher_is_better)


def in_order(names: set[str]) -> list[str]:
    """Names of metrics: those known here in their order, then the others by name."""
    return [name for name in _BY_NAME if name in names] + sorted(names - set(_BY_NAME))


def by_default(names: set[str]) -> list[str]:
    """The metrics that a report shows unless it is asked for others."""
    return in_order(names - _BY_REQUEST)
