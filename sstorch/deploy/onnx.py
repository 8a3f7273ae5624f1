"""Formulas as ONNX graphs, for the runtimes of other languages and machines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sstorch.deploy.expression import Expression, Formula, Hazards
from sstorch.deploy.steps import Steps
from sstorch.exceptions import ConfigError
from sstorch.files import write_whole
from sstorch.installing import install_extra

_OPSET = 21
_END = 2**62  # of a slice
_OPERATORS = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "minimum": "Min",
    "maximum": "Max",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "equal": "Equal",
    "and": "And",
    "or": "Or",
    "not": "Not",
    "negative": "Neg",
    "absolute": "Abs",
    "exp": "Exp",
    "log": "Log",
    "where": "Where",
}


def write_graph(formula: Formula, path: str | Path, title: str) -> None:
    """Write a formula as an ONNX file.

    Inputs are the columns by their names, (N, 1): float64 with NaN if missing, or strings, "" if missing; and
    ``time``, (1, T) float64. Outputs are ``survival`` (N, T), ``group`` (N, 1), and of several causes
    ``incidence`` (N, K, T).
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError(f"export_onnx needs onnx: {install_extra('deploy')}") from error
    if taken := {"time", "survival", "group", "incidence"} & {*formula.columns}:
        raise ConfigError(
            f"columns called {', '.join(sorted(taken))} cannot be inputs of a graph; rename them"
        )
    graph = _Graph(onnx, formula.columns)
    if formula.hazards is None:
        group, *curves = graph.results(formula.group, formula.survival, *formula.incidence.values())
        survival, *incidences = map(graph.curve, curves)
        incidence = graph.stacked(incidences) if incidences else None
    else:
        group, survival, incidence = _integrated(graph, formula.group, formula.hazards, formula.after)
    graph.node("Identity", survival, output="survival")
    if incidence is not None:
        graph.node("Identity", incidence, output="incidence")
    integer = graph.node("Cast", graph.node("Add", group, graph.rows()), to=onnx.TensorProto.INT64)
    graph.node("Identity", integer, output="group")
    model = graph.model(f"{title} {formula.condition}".strip(), formula.causes)
    onnx.checker.check_model(model)
    try:
        write_whole(Path(path).expanduser(), model.SerializeToString())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}; choose another file") from error


def _integrated(
    graph: _Graph, group: Expression, hazards: Hazards, after: float | None
) -> tuple[str, str, str]:
    """Nodes of the group, of survival (N, T) and of incidences (N, K, T), which `hazards` defines.

    Hazards are evaluated at once at all times: the nodes of all panels, the nodes of the last panel of each
    requested time, the edges of the panels, and the requested times.
    """
    node, constant = graph.node, graph.constant
    edges, places, weights = np.array(hazards.edges), *np.array(hazards.rule).T
    last_axis = constant([-1], "INT64")
    asked = "time"
    if after:
        asked = node("Add", constant(after), "time")
    safe = node("Max", asked, constant(float(np.finfo(np.float64).tiny)))
    end = node("Log", safe)
    # The last panel of each time begins at the last edge before it.
    passed = node("Cast", node("Less", constant(edges[:, None]), end), to=graph.types.INT64)
    number = node("ReduceSum", passed, constant([0], "INT64"), keepdims=0)
    full = node("Max", node("Sub", number, constant(1, "INT64")), constant(0, "INT64"))
    begins = node("Unsqueeze", node("Gather", constant(edges), full), constant([0], "INT64"))
    left = node(
        "Where", node("Less", constant(edges[0]), end), begins, node("Sub", end, constant(hazards.width))
    )
    # Six times for each requested time: the nodes of its last panel, and itself.
    half = node("Mul", node("Sub", end, left), constant(0.5))
    spread = node("Mul", node("Unsqueeze", half, last_axis), constant(np.append(1 + places, 2.0)))
    own = node("Reshape", node("Add", node("Unsqueeze", left, last_axis), spread), constant([1, -1], "INT64"))
    inner = edges[:-1, None] + np.diff(edges)[:, None] / 2 * (1 + places)
    log_times = node("Concat", constant(np.append(edges, inner)[None]), own, axis=1)
    graph.time = node("Exp", log_times)
    leaf, *values = graph.results(group, hazards.cumulative, *hazards.log_hazard.values())
    total, *log_hazards = map(graph.curve, values)
    n_edges, n_inner = len(edges), inner.size

    def panels(curve: str) -> str:
        """Values at the nodes of all panels and of the last ones, (N, panels, nodes)."""
        of_all = node(
            "Reshape", graph.slice(curve, n_edges, n_edges + n_inner), constant([0, -1, n], "INT64")
        )
        of_last = node(
            "Reshape", graph.slice(curve, n_edges + n_inner, _END), constant([0, -1, n + 1], "INT64")
        )
        return node("Concat", of_all, graph.slice(of_last, 0, n), axis=1)

    n = len(places)
    density = graph.stacked(
        [panels(node("Sub", node("Add", each, log_times), total)) for each in log_hazards]
    )
    largest = node("ReduceMax", density, constant([1, 3], "INT64"), keepdims=1)
    scaled = node("Exp", node("Sub", density, node("Max", largest, constant(-1e300))))
    mass = node("ReduceSum", node("Mul", scaled, constant(weights)), last_axis, keepdims=0)
    sum_ = node("ReduceSum", mass, constant([1], "INT64"), keepdims=1)
    known = node("Greater", sum_, constant(0.0))
    share = node("Where", known, node("Div", mass, sum_), constant(1 / len(log_hazards)))

    def lost(before: str, later: str) -> str:
        return node(
            "Unsqueeze", node("Max", node("Sub", before, later), constant(0.0)), constant([1], "INT64")
        )

    alive = node("Exp", node("Neg", total))
    one = node("Add", graph.rows(), constant(1.0))
    begin = node("Concat", one, graph.slice(alive, 1, n_edges), axis=1)
    gained = node(
        "Mul",
        graph.slice(share, 0, n_edges - 1),
        lost(graph.slice(begin, 0, n_edges - 1), graph.slice(begin, 1, n_edges)),
    )
    nothing = node("Mul", graph.slice(gained, 0, 1), constant(0.0))
    sums = node("CumSum", node("Concat", nothing, gained, axis=2), constant(2, "INT64"))
    at_end = node("Reshape", graph.slice(alive, n_edges + n_inner, _END), constant([0, -1, n + 1], "INT64"))
    survival = node("Squeeze", graph.slice(at_end, n, n + 1), last_axis)
    last = node(
        "Mul", graph.slice(share, n_edges - 1, _END), lost(node("Gather", begin, full, axis=1), survival)
    )
    positive = node("Greater", asked, constant(0.0))
    found = node("Add", node("Gather", sums, full, axis=2), last)
    incidence = node("Where", positive, found, constant(0.0))
    return leaf, node("Where", positive, survival, constant(1.0)), incidence


class _Graph:
    """Collects the nodes of a graph."""

    def __init__(self, onnx: Any, columns: Mapping[str, tuple[str, ...] | None]) -> None:
        self._onnx, self._columns = onnx, columns
        self.types = onnx.TensorProto
        self.steps: dict[str, str] = {}
        self.time = "time"  # value that stands for time, (1, T)
        self._nodes: list[Any] = []
        self._constants: dict[object, str] = {}
        self._tensors: list[Any] = []

    def node(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """One more node; the name of what it gives."""
        output = output or f"/value_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def constant(self, values: object, kind: str = "DOUBLE") -> str:
        """A tensor of numbers, truth values or labels."""
        array = np.asarray(values)
        entries = array.ravel().tolist()
        key = (kind, array.shape, repr(entries))
        if key not in self._constants:
            name = f"/constant_{len(self._constants)}"
            if kind == "STRING":
                entries = [str(value).encode() for value in entries]
            dtype = getattr(self._onnx.TensorProto, kind)
            self._tensors.append(self._onnx.helper.make_tensor(name, dtype, array.shape, entries))
            self._constants[key] = name
        return self._constants[key]

    def rows(self) -> str:
        """Zero for each row, (N, 1)."""
        missing = self._missing(next(iter(self._columns)))
        return self.node("Where", missing, self.constant(0.0), self.constant(0.0))

    def _missing(self, column: str) -> str:
        if self._columns[column] is None:
            return self.node("IsNaN", column)
        return self.node("Equal", column, self.constant("", "STRING"))

    def results(self, *results: Expression) -> list[str]:
        """Nodes of some results and of all their steps; the names of their values."""
        steps = Steps.of(*results)
        for name, a in steps.steps:
            self.steps[name] = self.add(a)
        return [self.add(a) for a in steps.results]

    def curve(self, value: str) -> str:
        """A value for each row and time, (N, T)."""
        rows = self.node("Add", value, self.rows())
        shape = self.node("Shape", self.node("Add", rows, self.time))
        return self.node("Expand", rows, shape)

    def stacked(self, curves: Sequence[str]) -> str:
        """Curves of all causes, (N, K, T)."""
        axis = self.constant([1], "INT64")
        return self.node("Concat", *(self.node("Unsqueeze", each, axis) for each in curves), axis=1)

    def slice(self, value: str, start: int, end: int, axis: int = -1) -> str:
        """Entries of an axis."""
        return self.node("Slice", value, *(self.constant([each], "INT64") for each in (start, end, axis)))

    def add(self, a: Expression) -> str:
        """Nodes of an expression; the name of its value."""
        args = [self.add(b) for b in a.args]
        match a.op:
            case "constant":
                value = a.constant
                return self.constant(value, "BOOL" if isinstance(value, bool) else "DOUBLE")
            case "step":
                return self.steps[str(a.value)]
            case "time":
                return self.time
            case "number":
                assert isinstance(a.value, tuple)
                column, missing = a.value
                if math.isnan(missing):
                    return str(column)
                return self.node("Where", self._missing(column), self.constant(missing), column)
            case "known":
                return self.node("Not", self._missing(str(a.value)))
            case "category":
                assert isinstance(a.value, tuple)
                column, label = a.value
                return self.node("Equal", column, self.constant(label, "STRING"))
            case "pick":
                place = self.node("Cast", args[0], to=self._onnx.TensorProto.INT64)
                return self.node("Gather", self.constant(a.value), place, axis=0)
            case "rank":
                columns = self.node("Unsqueeze", args[0], self.constant((-1,), "INT64"))
                passed = self.node("LessOrEqual", self.constant(a.value), columns)
                numbers = self.node("Cast", passed, to=self._onnx.TensorProto.DOUBLE)
                return self.node("ReduceSum", numbers, self.constant((-1,), "INT64"), keepdims=0)
            case "log1p":
                # Kahan's form: exact where 1 + x loses the digits of x.
                more = self.node("Add", args[0], self.constant(1.0))
                ratio = self.node("Div", args[0], self.node("Sub", more, self.constant(1.0)))
                small = self.node("Equal", more, self.constant(1.0))
                return self.node(
                    "Where", small, args[0], self.node("Mul", self.node("Log", more), self._finite(ratio))
                )
            case "expm1":
                power = self.node("Exp", args[0])
                return self.node("Sub", power, self.constant(1.0))
            case op:
                return self.node(_OPERATORS[op], *args)

    def _finite(self, ratio: str) -> str:
        """The ratio x / ((1 + x) - 1), 1 if x is infinite."""
        return self.node("Where", self.node("IsNaN", ratio), self.constant(1.0), ratio)

    def model(self, title: str, causes: Sequence[str] = ()) -> Any:
        """The finished graph."""
        helper, types = self._onnx.helper, self._onnx.TensorProto
        inputs = [
            helper.make_tensor_value_info(
                name, types.DOUBLE if categories is None else types.STRING, ["rows", 1]
            )
            for name, categories in self._columns.items()
        ]
        inputs.append(helper.make_tensor_value_info("time", types.DOUBLE, [1, "times"]))
        outputs = [
            helper.make_tensor_value_info("survival", types.DOUBLE, ["rows", "times"]),
            helper.make_tensor_value_info("group", types.INT64, ["rows", 1]),
        ]
        if causes:
            names = f"of {', '.join(causes)}"
            shape = ["rows", len(causes), "times"]
            outputs.append(helper.make_tensor_value_info("incidence", types.DOUBLE, shape, names))
        graph = helper.make_graph(self._nodes, "survival", inputs, outputs, self._tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], doc_string=title)
        model.ir_version = 10
        return model
