"""Formulas as in R: outcome, features and encodings from one line of text and a frame."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pandas as pd

from sstorch.checks import check_columns_exist, check_integer, check_unique, names_text
from sstorch.data import Surv
from sstorch.data.columns import kind_of, to_pandas
from sstorch.data.encodings import NumericEncoding, make_encoding
from sstorch.exceptions import ConfigError, DataError
from sstorch.installing import install_extra
from sstorch.soft.parameters import Columns

# Functions of a formula that give a numeric column a curve, by the name of the encoding.
_CURVES = {"s": "smooth", "spline": "spline", "piecewise": "piecewise"}
_LEVELS = ("C", "factor")
# Columns of the outcome that Surv(...) takes by position, as R does.
_POSITIONS = {1: ("time",), 2: ("time", "event"), 3: ("entry", "time", "event")}
_ROLES = {"time", "event", "entry", "id", "weight"}
_OPTIONS = {"causes", "recurrent", "event_value", "event_coding"}
# Names in backticks, and what represents them while an expression is parsed.
_QUOTED, _STAND_IN = re.compile(r"`([^`]+)`"), "quoted_name_"
_TERMS = (
    "terms are columns, s(x) and s(x, df), spline(x, df), piecewise(x, pieces), C(x), strata(x), offset(x) "
    "and products a:b of columns"
)


class ModelFrame(NamedTuple):
    """Features, outcome and encodings read from a formula, as arguments of estimators.

    Attributes:
        X: the columns on the right side, in their order, with the index of the frame.
        y: the outcome on the left side.
        columns: encodings of the columns, for the parameter ``columns`` of the soft estimators.
    """

    X: pd.DataFrame
    y: Surv
    columns: Columns


def model_frame(formula: str, frame: object) -> ModelFrame:
    """Read outcome, features and encodings from a formula.

    By default numeric columns have linear effects, and texts and categories are factors. The extra
    ``formula`` installs formulaic, which parses ``+``, ``-``, ``*``, ``:``, ``.`` and parentheses.

    Args:
        formula: ``"Surv(days, died) ~ s(age) + grade + size:grade"``. On the left ``Surv(time)``,
            ``Surv(time, event)`` or ``Surv(start, stop, event)``,
            with ``id=``, ``weight=`` and the other arguments of :meth:`Surv.of <sstorch.Surv.of>`; an event
            may be ``status == 2``. On the right columns, ``.`` for all others; ``s(x)``, a smooth curve,
            ``s(x, df)``, ``spline(x, df)`` and ``piecewise(x, pieces)``, as ``numeric`` of
            :class:`~sstorch.Columns`; ``C(x)``, a number as a factor; ``a:b``, a product, with ``a`` and
            ``b``, and ``a * b``, all three; ``strata(x)``; ``offset(x)``. Names with blanks need backticks.
        frame: DataFrame with the columns named.

    Raises:
        ConfigError: the formula is invalid or contains an unsupported term; the message names the term.
        DataError: a column does not exist, or the outcome is invalid.
        ImportError: formulaic is not installed; the message contains the command.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> frame = data.frame.assign(days=data.time, died=data.event)
    >>> X, y, columns = model_frame("Surv(days, died) ~ s(pnodes) + age * horTh", frame)
    >>> list(X), columns
    (['pnodes', 'age', 'horTh'], Columns(numeric={'pnodes': 'smooth(5)'}, interactions=(('age', 'horTh'),)))
    >>> SurvivalRegression(columns=columns).fit(X, y).score(frame, y) > 0.65
    True
    """
    table = to_pandas(frame)
    if not isinstance(table, pd.DataFrame):
        raise DataError(f"frame is a {type(frame).__name__}; give a DataFrame with the columns named")
    names = [str(name) for name in table.columns]
    check_unique(names)
    table = table.set_axis(names, axis=1)
    outcome, terms = _sides(formula, names)
    with _named(str(outcome)):
        y = _outcome(_expression(outcome.factors[0]), table)
    right, intercept = _RightSide(table), False
    for term in terms:
        with _named(str(term)):
            factors = [_expression(factor) for factor in term.factors]
            if len(factors) == 1 and isinstance(factors[0], ast.Constant):
                intercept = True
            else:
                right.add(factors)
    if not intercept:
        raise ConfigError(f"formula {formula!r} drops the intercept, which every model has: leave out 0, -1")
    return right.frame(y)


def _sides(formula: str, names: list[str]) -> tuple[Any, Iterable[Any]]:
    """The outcome and the terms of a formula, as formulaic has them."""
    try:
        from formulaic.errors import FormulaicError
        from formulaic.parser import DefaultFormulaParser
    except ImportError as error:
        raise ImportError(f"model_frame needs formulaic: {install_extra('formula')}") from error
    context = {"__formulaic_variables_available__": names}
    try:
        sides = DefaultFormulaParser().get_terms(formula, context=context)
    except (FormulaicError, SyntaxError) as error:
        raise ConfigError(f"formula {formula!r} cannot be read: {str(error).splitlines()[0]}") from error
    left, right = list(getattr(sides, "lhs", ())), getattr(sides, "rhs", None)
    if len(left) != 1 or right is None or isinstance(right, tuple):
        raise ConfigError(
            f"formula {formula!r} must have one outcome on the left of ~ and columns on the right, such as "
            "'Surv(time, event) ~ age + grade'"
        )
    return left[0], right


class _RightSide:
    """Columns of the right side of a formula, and what becomes of them.

    Args:
        table: the frame.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        self._table = table
        self._columns: dict[str, pd.Series] = {}
        self._numeric: dict[str, NumericEncoding] = {}
        self._pairs: list[tuple[str, str]] = []
        self._fixed: dict[str, str] = {}

    def add(self, factors: list[ast.expr]) -> None:
        """Read a term, a column or the factors of a product."""
        if len(factors) > 2:
            raise ConfigError("products have two columns: multiply two of them in the frame first")
        if len(factors) == 2:
            first, second = map(self._in_product, factors)
            self._pairs.append((first, second))
        elif isinstance(factors[0], ast.Call):
            self._add_call(factors[0])
        else:
            self._columns.setdefault(*self._column(factors[0]))

    def frame(self, y: Surv) -> ModelFrame:
        """Result of the formula after reading all terms."""
        for pair in self._pairs:
            if lacking := [name for name in pair if name not in self._columns]:
                raise ConfigError(
                    f"term {':'.join(pair)}: products need their columns, too: add {names_text(lacking)} or "
                    f"write {pair[0]} * {pair[1]}"
                )
        if not self._columns:
            raise ConfigError("the right side of the formula has no columns")
        X = pd.DataFrame(self._columns, index=self._table.index)
        numeric = {name: str(encoding) for name, encoding in self._numeric.items()}
        pairs = tuple(self._pairs)
        return ModelFrame(X, y, Columns(numeric or "linear", interactions=pairs, **self._fixed))  # type: ignore[arg-type]

    def _add_call(self, call: ast.Call) -> None:
        function = ast.unparse(call.func)
        if function not in (*_CURVES, *_LEVELS, "strata", "offset") or not call.args:
            raise ConfigError(f"{_TERMS}; make other functions of columns a column of the frame first")
        name, column = self._column(call.args[0])
        options = [ast.literal_eval(each) for each in (*call.args[1:], *(key.value for key in call.keywords))]
        if len(options) > (function in _CURVES):
            raise ConfigError(f"{function} has too many arguments: {_TERMS}")
        if function in _CURVES:
            if kind_of(column) == "categorical":
                raise ConfigError(f"column {name!r} is categorical and has no curve: write {name}")
            option = "".join(f"({check_integer('the option', each, 2)})" for each in options)
            encoding = make_encoding(_CURVES[function] + option, function)
            if self._numeric.setdefault(name, encoding) != encoding:
                raise ConfigError(f"column {name!r} has another curve, {self._numeric[name]}, already")
        elif function != "offset":
            column = column.astype("category")
        if function in ("strata", "offset") and self._fixed.setdefault(function, name) != name:
            raise ConfigError(f"a model has one {function}: combine the columns in the frame first")
        self._columns[name] = column

    def _in_product(self, node: ast.expr) -> str:
        """Name of a column in a product."""
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) not in _LEVELS or len(node.args) != 1:
                raise ConfigError("products are of columns as they are: write a:b in addition to s(a) and b")
            node = node.args[0]
        return self._column(node)[0]

    def _column(self, node: ast.expr) -> tuple[str, pd.Series]:
        name = _name(node)
        check_columns_exist([name], list(self._table.columns))
        return name, self._table[name]


def _outcome(node: ast.expr, table: pd.DataFrame) -> Surv:
    """The outcome that the left side of a formula names."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "Surv":
        raise ConfigError("the left side must be Surv(time, event), of names of columns")
    given = {str(key.arg): key.value for key in node.keywords}
    places = _POSITIONS.get(len(node.args), ())
    if len(places) != len(node.args):
        raise ConfigError("Surv takes (time), (time, event) or (start, stop, event)")
    given |= dict(zip(places, node.args, strict=True))
    if unknown := sorted(set(given) - _ROLES - _OPTIONS):
        raise ConfigError(f"Surv takes no argument {unknown[0]!r} in a formula")
    values: dict[str, Any] = {}
    event = given.get("event")
    if isinstance(event, ast.Compare) and isinstance(event.ops[0], ast.Eq):
        given["event"], values["event_value"] = event.left, ast.literal_eval(event.comparators[0])
    for role, value in given.items():
        values[role] = _name(value) if role in _ROLES else ast.literal_eval(value)
    return Surv.of(table, **values)


def _expression(factor: Any) -> ast.expr:
    """A factor as an expression, in which names are those of columns, also names in backticks."""
    if factor.eval_method.value == "lookup":
        return ast.Name(factor.expr)
    quoted: list[str] = _QUOTED.findall(factor.expr)
    stand_ins = iter(range(len(quoted)))
    text = _QUOTED.sub(lambda _: f"{_STAND_IN}{next(stand_ins)}", factor.expr)
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id.startswith(_STAND_IN):
            node.id = quoted[int(node.id.removeprefix(_STAND_IN))]
    return tree.body


def _name(node: ast.expr) -> str:
    """Name of a column; in R it may have dots."""
    if not isinstance(node, ast.Name | ast.Attribute):
        raise ConfigError(f"{ast.unparse(node)} is no column: make it a column of the frame first")
    return ast.unparse(node)


@contextmanager
def _named(term: str) -> Iterator[None]:
    """Name the term in errors."""
    try:
        yield
    except (ConfigError, DataError) as error:
        raise type(error)(f"term {term}: {error}") from error
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"term {term} cannot be read: {_TERMS}") from error
