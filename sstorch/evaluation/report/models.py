"""What the models of a study are called, and in which order they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

# The soft trees of the paper with a ridge on their gates.
_GATED = "_gated"
# Titles of the soft trees as in Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis".
FAMILIES: dict[str, dict[str, str]] = {
    "soft trees": {
        "sst_exp": "Exp",
        "sst_weibull": "Weibull",
        "sst_llog": "Llog",
        "sst_llog_kmeans": "Llog k-means",
        "sst_po": "PO",
        "sst_ph": "PH",
        "sst_exp_gated": "Exp, gated",
        "sst_weibull_gated": "Weibull, gated",
        "sst_llog_gated": "Llog, gated",
        "sst_llog_kmeans_gated": "Llog k-means, gated",
        "sst_po_gated": "PO, gated",
        "sst_ph_gated": "PH, gated",
        "sst_cv": "Chosen by search",
    },
    "greedy trees": {"sksurv": "SkSurv", "rpart": "RPART", "ctree": "CTree"},
    "exact trees": {"surtree": "SurTree", "osst": "OSST"},
    "other models": {
        "kaplan_meier": "Kaplan-Meier",
        "cox": "Cox",
        "weibull_aft": "Weibull AFT",
        "log_logistic_aft": "Log-logistic AFT",
        "rsf": "RSF",
        "gradient_boosting": "Gradient boosting",
        "deepsurv": "DeepSurv",
        "coxtime": "CoxTime",
        "logistic_hazard": "Logistic hazard",
    },
}
_SOFT, _OTHER = "soft trees", "other models"
_TITLES = {name: title for names in FAMILIES.values() for name, title in names.items()}
_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}
_POSITION = {name: position for position, name in enumerate(_TITLES)}


@dataclass(frozen=True)
class Model:
    """A column of the tables: a model, at a depth where it has one.

    Attributes:
        name: as in the results, such as "sst_llog", or "sst_llog,ridge=0.1" for one of several settings.
        depth: of the tree; None for a model without a depth.
        soft: whether it is known to be soft trees though its name is not known.
    """

    name: str
    depth: int | None = None
    soft: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        """The name of its files in a run folder, such as "sst_llog_d2"."""
        return self.name if self.depth is None else f"{self.name}_d{self.depth}"

    @property
    def counterpart(self) -> Model:
        """The model of the published tables that it is compared with: itself, or the one without a ridge."""
        return Model(self.name.removesuffix(_GATED), self.depth)

    @property
    def title(self) -> str:
        """The name to print, without the depth; settings that the name has after a comma are kept."""
        name, comma, told = self.name.partition(",")
        return f"{_TITLES.get(name, name)}{', ' if comma else ''}{told}"

    @property
    def label(self) -> str:
        """The name to print, with the depth."""
        return self.title if self.depth is None else f"{self.title} D{self.depth}"

    @property
    def family(self) -> str:
        """One of `FAMILIES`; names that are not known belong to the last, unless they are soft trees."""
        return _FAMILY_OF.get(self.name.partition(",")[0], _SOFT if self.soft else _OTHER)

    @property
    def is_soft_tree(self) -> bool:
        """Whether it is one of the soft trees."""
        return self.family == _SOFT

    @property
    def order(self) -> tuple[int, str, int]:
        """Key to sort by: known names in the order of `FAMILIES`, then others by name; then the depth."""
        position = _POSITION.get(self.name.partition(",")[0], len(_POSITION))
        return (position, self.name, -1 if self.depth is None else self.depth)


def by_family(models: Iterable[Model]) -> dict[str, list[Model]]:
    """Models by family, in the order of `FAMILIES`; families without a model are left out."""
    members: dict[str, list[Model]] = {family: [] for family in FAMILIES}
    for model in models:
        members[model.family].append(model)
    return {family: own for family, own in members.items() if own}


def deepest(models: Iterable[Model]) -> list[Model]:
    """One entry a model: that of the largest depth, so that no result has a say in the choice."""
    chosen: dict[str, Model] = {}
    for model in sorted(models, key=lambda model: model.order):
        chosen[model.name] = model
    return list(chosen.values())
