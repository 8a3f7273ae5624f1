"""Gates and leaves in original units: coefficients, effects and the text of a rule."""

from __future__ import annotations

import math

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


def middles(preprocessor: Preprocessor) -> pd.Series:
    """Middle of the training range of each encoded feature, in original units; by feature."""
    scale = preprocessor.scale_
    half = np.divide(0.5, scale, out=np.zeros_like(scale), where=scale != 0)
    return pd.Series(preprocessor.offset_ + half, index=preprocessor.feature_names_out)


def rounded(
    table: pd.DataFrame, intercept: float, middle: pd.Series, digits: int = 3
) -> tuple[list[str], str]:
    """Coefficients and constant of a rule as they are written.

    What the rounding of a coefficient would change in the middle of its feature's range is made up for by the
    constant, which is written to a thousandth of the largest effect: else a column far from zero, such as a
    year, would turn the rule into another.

    Args:
        table: of :func:`coefficients`.
        intercept: of :func:`constant`.
        middle: of :func:`middles`.
        digits: significant digits of the coefficients; more of them make the constant finer, too.
    """
    numbers = [f"{value:+.{digits}g}" for value in table["coefficient"]]
    change = table["coefficient"].to_numpy() - np.array([float(number) for number in numbers])
    intercept += float(change @ middle[table.index].to_numpy())
    return numbers, _down_to(intercept, float(table["effect"].abs().max()) / 10**digits)


def rule_text(
    table: pd.DataFrame, intercept: float, middle: pd.Series, n_terms: int | None = None, digits: int = 3
) -> str:
    """A gate's rule, ``+0.3 age -1.2 sex=female -14.05 >= 0``: rows go left where it holds.

    Args:
        table: as in :func:`rounded`.
        intercept: see there.
        middle: see there.
        n_terms: how many terms are written out, the largest; the others are counted. None writes all.
        digits: see :func:`rounded`.
    """
    used = table[table["coefficient"] != 0.0]
    if used.empty:
        return f"{intercept:+.{digits}g} >= 0"
    numbers, last = rounded(used, intercept, middle, digits)
    terms = [f"{number} {name}" for number, name in zip(numbers, used.index, strict=True)]
    if n_terms is not None and len(terms) > n_terms:
        terms[n_terms:] = [f"({len(terms) - n_terms} smaller terms)"]
    return " ".join([*terms, last, ">= 0"])


def _down_to(value: float, resolution: float) -> str:
    """A number with its sign and all digits down to a resolution, zeros at the end left out."""
    if value == 0:
        return "+0"
    decimals = max(math.ceil(-math.log10(resolution)), 0)
    return f"{value:+.{max(math.floor(math.log10(abs(value))) + 1 + decimals, 1)}g}"
