"""Reading a fitted tree: rules, tables, effects, explanations."""

from sstorch.reading.effects import effects
from sstorch.reading.functions import (
    export_graphviz,
    export_text,
    gate_coefficients,
    gate_table,
    leaf_coefficients,
    leaf_table,
)

__all__ = [
    "effects",
    "export_graphviz",
    "export_text",
    "gate_coefficients",
    "gate_table",
    "leaf_coefficients",
    "leaf_table",
]
