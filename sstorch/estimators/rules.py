"""Gates and leaves in original units: coefficients, effects and the text of a rule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from sstorch.data import Preprocessor

FloatArray = npt.NDArray[np.float64]


def coefficients(preprocessor: Preprocessor, weight: Tensor) -> pd.DataFrame:
    """A linear score's slopes, largest effect first.

    Args:
        preprocessor: of the features the score is on.
        weight: slopes on the encoded features, shape (p,).

    Returns:
        Indexed by encoded feature: ``column`` (the raw column), ``coefficient`` (change of the score per
        original unit, or where the category applies) and ``effect`` (change over the training range of a
        number, or where the category applies). Features without information in the training rows are left
        out.
    """
    effect = weight.detach().cpu().double().numpy()
    table = pd.DataFrame(
        {
            "column": [column for column, _ in preprocessor.schema.origins],
            "coefficient": effect * preprocessor.scale_,
            "effect": effect,
        },
        index=pd.Index(preprocessor.feature_names_out, name="feature"),
    )
    # After scaling every feature spans one unit, so the weight is the effect of the whole range.
    order = np.argsort(-np.abs(effect), kind="stable")
    informative: pd.DataFrame = table.iloc[order[preprocessor.scale_[order] != 0]]
    return informative


def constant(preprocessor: Preprocessor, weight: Tensor, bias: Tensor) -> float:
    """Value of the score where all original numbers are zero and no category applies."""
    slope = weight.detach().cpu().double().numpy() * preprocessor.scale_
    return float(bias.detach()) - float(slope @ preprocessor.offset_)


def effect_by_column(table: pd.DataFrame, columns: npt.ArrayLike) -> pd.Series:
    """Largest change of a score that each raw column can make within its training range.

    That of a number is its effect's size; that of a categorical column is the difference between its highest
    and lowest category, a missing one (effect 0) among them.

    Args:
        table: of :func:`coefficients`.
        columns: raw columns, all of them.
    """
    groups = table.groupby("column")["effect"]
    span = groups.max().clip(lower=0) - groups.min().clip(upper=0)
    return span.reindex(np.asarray(columns), fill_value=0.0)


def rule_text(table: pd.DataFrame, intercept: float, n_terms: int | None = None) -> str:
    """A gate's rule, ``+0.3 age -1.2 sex=female -14 >= 0``: rows go left where it holds.

    Args:
        table: of :func:`coefficients`.
        intercept: of :func:`constant`.
        n_terms: how many terms are written out, the largest; the others are counted. None writes all.
    """
    used = table[table["coefficient"] != 0.0]["coefficient"]
    shown = used.iloc[:n_terms]
    terms = [f"{value:+.3g} {name}" for name, value in shown.items()]
    if len(used) > len(shown):
        terms.append(f"({len(used) - len(shown)} smaller terms)")
    return " ".join([*terms, f"{intercept:+.3g}", ">= 0"])
