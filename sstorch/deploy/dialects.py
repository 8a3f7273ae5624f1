"""Differences between the SQL of databases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DialectName = Literal["postgresql", "sqlite", "duckdb", "tsql", "mysql", "oracle", "bigquery"]


@dataclass(frozen=True)
class Dialect:
    """The SQL of one database."""

    number: str = "DOUBLE PRECISION"  # type of a number in double precision
    # a column as what can be cast to a number: some databases cast no truth value to one
    castable: str = "{}"
    text: str = "VARCHAR"  # type of a text that is long enough for a category
    integer: str = "INTEGER"  # type of a whole number
    infinity: str = "CAST('Infinity' AS DOUBLE PRECISION)"  # a number above all others
    log: str = "LN"  # function of the natural logarithm
    quotes: str = '""'  # around a name
    literal: str = ""  # before a text
    # characters of a text and how they are written
    escapes: Mapping[str, str] = field(default_factory=lambda: {"'": "''"})
    exact: str = ""  # after a text that is compared: a collation that distinguishes upper and lower case
    once: str = "AS"  # ``"AS"`` of a common table expression, with the request to evaluate it once
    hint: str = ""  # after ``SELECT`` in a common table expression, for the same
    # whether that request is binding, so that row numbers are the same in each use
    evaluates_once: bool = False
    has_values: bool = False  # whether ``VALUES`` makes a table of numbers
    dual: str = ""  # ``FROM`` of a query without a table
    upper: bool = False  # whether plain names are stored in capitals

    def quoted(self, name: str) -> str:
        """A name as the database stores it; in Oracle plain names represent capitals, as without quotes."""
        if self.upper and re.fullmatch(r"[A-Za-z][A-Za-z0-9_$#]*", name):
            name = name.upper()
        left, right = self.quotes[0], self.quotes[1]
        return left + name.replace(right, 2 * right) + right

    def table(self, name: str) -> str:
        """A table, with its schema before a point; parts with a point inside stand in double quotes."""
        parts = re.findall(r'"(?:[^"]|"")+"|[^."]+', name)
        return ".".join(self.quoted(part.strip('"').replace('""', '"')) for part in parts)

    def label(self, text: str) -> str:
        """A text as a literal."""
        return f"{self.literal}'{''.join(self.escapes.get(each, each) for each in text)}'"


_BACKSLASH = {"\\": "\\\\", "'": "''"}
_TRUTHS = "REPLACE(REPLACE(CAST({} AS @), 'true', '1'), 'false', '0')"
# Large, yet a product of it with a coefficient is still a number where infinity is none.
_LARGE = "1e300"
DIALECTS: Mapping[DialectName, Dialect] = {
    "postgresql": Dialect(
        castable=_TRUTHS.replace("@", "TEXT"), once="AS MATERIALIZED", evaluates_once=True, has_values=True
    ),
    "sqlite": Dialect(infinity="9e999", once="AS MATERIALIZED", evaluates_once=True, has_values=True),
    "duckdb": Dialect(once="AS MATERIALIZED", evaluates_once=True, has_values=True),
    "tsql": Dialect(
        number="FLOAT",
        text="NVARCHAR(4000)",
        infinity=_LARGE,
        log="LOG",
        quotes="[]",
        literal="N",
        exact=" COLLATE Latin1_General_BIN2",
        hint="TOP (2147483647) ",  # keeps the server from expanding each step where it is used
    ),
    "mysql": Dialect(
        number="DOUBLE",
        text="CHAR CHARACTER SET utf8mb4",
        integer="SIGNED",
        infinity=_LARGE,
        quotes="``",
        escapes=_BACKSLASH,
        exact=" COLLATE utf8mb4_bin",
        hint="/*+ NO_MERGE() */ ",
    ),
    "oracle": Dialect(
        number="BINARY_DOUBLE",
        text="VARCHAR2(4000)",
        infinity="BINARY_DOUBLE_INFINITY",
        hint="/*+ MATERIALIZE */ ",
        dual=" FROM DUAL",
        upper=True,
    ),
    "bigquery": Dialect(
        number="FLOAT64",
        castable=_TRUTHS.replace("@", "STRING"),
        text="STRING",
        integer="INT64",
        infinity="CAST('inf' AS FLOAT64)",
        quotes="``",
        escapes={"\\": "\\\\", "'": "\\'", "\n": "\\n", "`": "\\`"},
    ),
}
