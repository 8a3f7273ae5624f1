"""Functions take an outcome whole: entry times and weights of rows are hardly ever separate arguments."""

from __future__ import annotations

import ast
from pathlib import Path

import sstorch

ROOT = Path(sstorch.__file__).parent
WEIGHTS = {"weight", "weights", "sample_weight"}
# Constructors of outcomes and of the container of checked rows.
CONSTRUCTORS = {
    *(f"data/surv.py:{name}" for name in ("__init__", "_set", "interval", "of")),
    "data/survival_data.py:from_frame",
    "data/datasets.py:load_file",
}


def loose_functions() -> list[str]:
    """Functions with an array of entry times and an array of weights as arguments.

    Not counted are the constructors of `Surv` and `SurvivalData`, `load_file`, and functions whose argument
    ``entry`` is a boolean, whether they support left truncation.
    """
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.FunctionDef) or f"{name}:{node.name}" in CONSTRUCTORS:
                continue
            args = {arg.arg: arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
            entry = args.get("entry")
            flag = (
                entry is not None and entry.annotation is not None and ast.unparse(entry.annotation) == "bool"
            )
            if entry is not None and not flag and WEIGHTS & set(args):
                found.append(f"{name}:{node.name}")
    return found


def test_only_named_functions_take_entry_and_weight() -> None:
    assert sorted(loose_functions()) == [
        "exact/survival_tasks.py:__init__",  # LogLikelihood
        "exact/survival_tasks.py:__init__",  # CompetingLogLikelihood
        "nn/distribution.py:competing_nll",  # losses of tensors
        "nn/distribution.py:nll",
        "nn/heads.py:initialize",
        "optim/starts/cox.py:cox_cumulative_hazards",
        "optim/starts/cox.py:of",
    ]
