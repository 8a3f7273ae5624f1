"""Reading a fitted tree: rules, tables, effects, explanations, simpler forms."""

from sstorch.reading.effects import effects
from sstorch.reading.explain import Explanation
from sstorch.reading.functions import (
    export_graphviz,
    export_text,
    gate_coefficients,
    gate_table,
    importance,
    leaf_coefficients,
    leaf_table,
)
from sstorch.reading.interactions import interactions
from sstorch.reading.merging import MergedLeaves, merge_leaves
from sstorch.reading.paths import path_table
from sstorch.reading.simplify import SimplifiedRules, simplify
from sstorch.reading.survival_at import SurvivalAt

__all__ = [
    "Explanation",
    "MergedLeaves",
    "SimplifiedRules",
    "SurvivalAt",
    "effects",
    "export_graphviz",
    "export_text",
    "gate_coefficients",
    "gate_table",
    "importance",
    "interactions",
    "leaf_coefficients",
    "leaf_table",
    "merge_leaves",
    "path_table",
    "simplify",
]
