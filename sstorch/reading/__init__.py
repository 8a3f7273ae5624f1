"""Reading a fitted tree: rules, tables, effects, explanations, simpler forms."""

from sstorch.reading.explain import Explanation
from sstorch.reading.functions import (
    effects,
    export_graphviz,
    export_text,
    gate_coefficients,
    gate_table,
    gate_terms,
    importance,
    interactions,
    leaf_coefficients,
    leaf_table,
    merge_leaves,
    path_table,
    simplify,
)
from sstorch.reading.merging import MergedLeaves
from sstorch.reading.simplify import SimplifiedRules
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
    "gate_terms",
    "importance",
    "interactions",
    "leaf_coefficients",
    "leaf_table",
    "merge_leaves",
    "path_table",
    "simplify",
]
