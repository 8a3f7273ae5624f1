"""The tree of a configuration for the type of an outcome."""

from __future__ import annotations

from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.nn import HazardFamily
from sstorch.soft import CompetingRisksTree, SoftSurvivalTree

# What is no setting of a single training.
_OWN = {"random_state", "verbose", "n_starts"}


def estimator_for(
    data: SurvivalData, tree: SoftSurvivalTree, leaf: str | HazardFamily | None = None
) -> SoftSurvivalTree | CompetingRisksTree:
    """The estimator for the type of an outcome, not fitted.

    Args:
        data: rows.
        tree: parameters, not fitted; itself the estimator of one event, whatever its times.
        leaf: hazard family where causes compete; None for that of the tree.

    Raises:
        ConfigError: a parameter does not exist for competing risks and has another value than its default.
    """
    if data.outcome_type.causes is None:
        return tree
    return competing_risks_tree(tree, tree.leaf if leaf is None else leaf)


def competing_risks_tree(tree: SoftSurvivalTree, leaf: str | HazardFamily = "auto") -> CompetingRisksTree:
    """The tree for competing risks with the parameters of a tree for one event.

    Args:
        tree: whose parameters are taken.
        leaf: hazard family instead of that of the tree.

    Raises:
        ConfigError: a parameter of the tree that the other does not have has another value than its default.
    """
    own = set(CompetingRisksTree._get_param_names()) - {"leaf", "causes"}
    given, plain = tree.get_params(deep=False), SoftSurvivalTree().get_params(deep=False)
    for name, value in given.items():
        if name not in own | _OWN | {"leaf"} and value != plain[name]:
            raise ConfigError(f"{name} is not used where causes compete; leave it out")
    shared = {name: given[name] for name in own if given.get(name) is not None}
    return CompetingRisksTree(leaf=leaf, **shared)
