"""Formulas printed as R."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from sstorch.deploy.printer import SIGNS
from sstorch.deploy.script import Script, indented

_R = """
.where <- function(test, a, b) {
  n <- max(length(test), length(a), length(b))
  ifelse(rep_len(test, n) %in% TRUE, rep_len(a, n), rep_len(b, n))
}

.log <- function(x) suppressWarnings(log(x))

.log1p <- function(x) suppressWarnings(log1p(x))

.for_each <- function(x, patient) {
  if (is.list(x)) lapply(x, .for_each, patient) else rep_len(x, max(length(x), lengths(patient)))
}
"""
_READING = """
.value <- function(patient, column) {
  value <- patient[[column]]
  if (is.null(value)) NA else value
}

.number <- function(patient, column, missing) {
  value <- .value(patient, column)
  if (is.factor(value) || is.character(value)) {
    stop(column, " must be a number, got ", value[!is.na(value)][1], call. = FALSE)
  }
  ifelse(is.na(value), missing, as.numeric(value))
}

.label <- function(patient, column) {
  value <- .value(patient, column)
  if (is.logical(value)) return(c("False", "True")[value + 1])
  if (!is.numeric(value) || is.factor(value)) return(as.character(value))
  digits <- function(each) if (is.na(each)) NA_character_ else format(each, digits = 15, scientific = FALSE)
  vapply(value, digits, "")
}
"""
_CHECK = """
.check <- function(patient) {
  for (column in names(.columns)) {
    if (!column %in% names(patient)) {
      stop("the patient has no column ", column, ", got ", toString(names(patient)),
           ": correct the name, or give NA where the value is unknown", call. = FALSE)
    }
    unknown <- setdiff(.label(patient, column), c(.columns[[column]], NA))
    if (length(.columns[[column]]) && length(unknown)) {
      stop(column, " must be one of ", toString(.columns[[column]]), ", got ", unknown[1],
           ": correct the category, or give NA where it is unknown", call. = FALSE)
    }
  }
}
"""
_QUADRATURE = """
.edges <- unlist(@EDGES@)
.rule <- @RULE@

# Integrals of hazard times survival up to a time: in each panel causes share what survival loses.
# Each is followed by its derivatives, if the curves are.
.integrals <- function(at, time) {
  if (length(time) != 1) stop("time must be one number, got ", length(time), call. = FALSE)
  plus <- function(a, b) Map(`+`, a, b)
  size <- length(at(time)[[@CAUSES@ + 1]])
  found <- rep(list(rep(list(0), size)), @CAUSES@)
  if (time <= 0) return(found)
  end <- log(time)
  below <- .edges[.edges < end]
  edges <- c(if (length(below)) below else end - @WIDTH@, end)
  alive <- c(list(1), rep(list(0), size - 1))
  for (panel in seq_len(length(edges) - 1)) {
    left <- edges[panel]
    right <- edges[panel + 1]
    density <- lapply(.rule, function(node) {
      log_time <- left + (right - left) / 2 * (1 + node[[1]])
      hazards <- at(exp(log_time))
      lapply(hazards[seq_len(@CAUSES@)], function(hazard) {
        logs <- Map(`-`, hazard, hazards[[@CAUSES@ + 1]])
        c(list(logs[[1]] + log_time), logs[-1])
      })
    })
    largest <- do.call(pmax, c(list(-1e300), lapply(unlist(density, recursive = FALSE), `[[`, 1)))
    masses <- lapply(seq_len(@CAUSES@), function(k) {
      Reduce(plus, Map(function(node, logs) {
        part <- node[[2]] * exp(logs[[k]][[1]] - largest)
        c(list(part), lapply(logs[[k]][-1], `*`, part))
      }, .rule, density))
    })
    whole <- Reduce(plus, masses)
    total <- at(exp(right))[[@CAUSES@ + 1]]
    survival <- exp(-total[[1]])
    later <- c(list(survival), lapply(total[-1], `*`, -survival))
    lost <- Map(`-`, alive, later)
    lost[[1]] <- pmax(lost[[1]], 0)
    found <- Map(function(sums, mass) {
      share <- .where(whole[[1]] > 0, mass[[1]] / whole[[1]], 1 / @CAUSES@)
      lapply(seq_len(size), function(q) {
        slope <- if (q > 1) .where(whole[[1]] > 0, (mass[[q]] - share * whole[[q]]) / whole[[1]], 0) else 0
        sums[[q]] + share * lost[[q]] + slope * lost[[1]]
      })
    }, found, masses)
    alive <- later
  }
  found
}
"""
_LIMITS = """
# Limits of S = exp(-hazard), symmetric for log(-log S); derivatives follow the hazard.
.limits <- function(hazard, covariance) {
  slopes <- hazard[-1]
  hazard <- hazard[[1]]
  variance <- 0
  for (a in seq_along(slopes)) {
    for (b in seq_along(slopes)) variance <- variance + slopes[[a]] * slopes[[b]] * covariance[[a]][[b]]
  }
  width <- @CRITICAL@ * sqrt(pmax(variance, 0)) / hazard
  width <- .where(hazard > 0 & (is.na(variance) | variance > 0), width, 0)
  list(lower = exp(-hazard * exp(width)), upper = exp(-hazard * exp(-width)))
}
"""
_COMPLEMENT = """
# Limits of F, symmetric for log(-log(1 - F)); derivatives follow the share.
.complement <- function(share, covariance) {
  slopes <- lapply(share[-1], function(slope) slope / (1 - share[[1]]))
  ends <- .limits(c(list(-.log1p(-share[[1]])), slopes), covariance)
  list(lower = 1 - ends$upper, upper = 1 - ends$lower)
}
"""


class R(Script):
    """Base R, without packages; numbers are vectors with an entry for each row of the patients."""

    truths = ("FALSE", "TRUE")
    infinity = "Inf"
    nan = "NaN"
    private = "."
    signs: ClassVar = {**SIGNS, "and": "&", "or": "|", "not": "!", "equal": "=="}
    words: ClassVar = {
        "log": ".log",
        "log1p": ".log1p",
        "absolute": "abs",
        "minimum": "pmin",
        "maximum": "pmax",
    }
    forms: ClassVar = {
        "where": ".where({}, {}, {})",
        "pick": "c({})[{} + 1]",
        "rank": "findInterval({1}, c({0}))",
        "number": ".number(patient, {}, {})",
        "known": "(!is.na(.value(patient, {})))",
        "category": "(.label(patient, {}) %in% {})",
        "step": "{} <- {}",
        "default": "{} = {}",
    }
    _reading, _check, _checking = _READING, _CHECK, ".check(patient)"
    _quadrature = _QUADRATURE
    _limits = _LIMITS
    _complement = _COMPLEMENT

    @override
    def _head(self, facts: Sequence[str]) -> str:
        return "".join(f"# {line}\n" for line in facts) + _R

    @override
    def _list(self, items: Iterable[str]) -> str:
        return f"list({', '.join(items)})"

    @override
    def _item(self, of: str, k: int) -> str:
        return f"{of}[[{k + 1}]]"

    @override
    def _constant(self, columns: Mapping[str, Sequence[str]]) -> str:
        labels = {name: f"c({', '.join(map(self.quoted, known))})" for name, known in columns.items()}
        return f"\n.columns <- {self._pairs(labels)}\n"

    @override
    def _function(self, head: str, says: str, lines: Sequence[str], result: str) -> str:
        name, arguments = head.split("(", 1)
        result = result if name.startswith(self.private) else f".for_each({result}, patient)"
        return f"\n# {says}\n{name} <- function({arguments} {{\n" + indented([*lines, result], 2) + "}\n"

    @override
    def _pairs(self, pairs: Mapping[str, str]) -> str:
        return self._list(f"{self.quoted(name)} = {text}" for name, text in pairs.items())

    @override
    def _curves(self, lines: Sequence[str], result: str) -> list[str]:
        return ["at <- function(time) {", *("  " + line for line in [*lines, result]), "}"]

    @override
    def quoted(self, text: str) -> str:
        # Does not depend on the encoding of the file.
        return '"' + re.sub(r"[^ !#-\[\]-~]", lambda found: f"\\U{{{ord(found[0]):x}}}", text) + '"'
