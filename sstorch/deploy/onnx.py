"""Formulas as ONNX graphs, for the runtimes of other languages and machines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sstorch.deploy.expression import Expression, Formula, Steps
from sstorch.exceptions import ConfigError
from sstorch.files import write_whole
from sstorch.installing import install_extra

_OPSET = 21
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

    Inputs are the columns by their names, (N, 1): float64 with NaN where missing, or strings, "" where
    missing; and ``time``, (1, T) float64. Outputs are ``survival`` (N, T) and ``group`` (N, 1).

    Args:
        formula: of the model.
        path: of the file.
        title: what the model is.

    Raises:
        ConfigError: the file cannot be written, or a column is called like another part of the graph.
        ImportError: onnx is not installed; the message says how to install it.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError(f"export_onnx needs onnx: {install_extra('deploy')}") from error
    if taken := {"time", "survival", "group"} & {*formula.columns}:
        raise ConfigError(
            f"columns called {', '.join(sorted(taken))} cannot be inputs of a graph; rename them"
        )
    graph = _Graph(onnx, formula.columns)
    steps = Steps.of(formula.group, formula.survival)
    for name, a in steps.steps:
        graph.steps[name] = graph.add(a)
    group, survival = (graph.add(a) for a in steps.results)
    shape = graph.node("Shape", graph.node("Add", survival, graph.rows()))
    graph.node("Expand", survival, shape, output="survival")
    integer = graph.node("Cast", graph.node("Add", group, graph.rows()), to=onnx.TensorProto.INT64)
    graph.node("Identity", integer, output="group")
    model = graph.model(f"{title} {formula.condition}".strip())
    onnx.checker.check_model(model)
    try:
        write_whole(Path(path).expanduser(), model.SerializeToString())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}; choose another file") from error


class _Graph:
    """Collects the nodes of a graph."""

    def __init__(self, onnx: Any, columns: Mapping[str, tuple[str, ...] | None]) -> None:
        self._onnx, self._columns = onnx, columns
        self.steps: dict[str, str] = {}
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
        key = (kind, repr(values))
        if key not in self._constants:
            name = f"/constant_{len(self._constants)}"
            several = values if isinstance(values, tuple) else [values]
            if kind == "STRING":
                several = [str(value).encode() for value in several]
            dims = [len(several)] if isinstance(values, tuple) else []
            dtype = getattr(self._onnx.TensorProto, kind)
            self._tensors.append(self._onnx.helper.make_tensor(name, dtype, dims, several))
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
                return "time"
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
        """The ratio x / ((1 + x) - 1), 1 where x is infinite."""
        return self.node("Where", self.node("IsNaN", ratio), self.constant(1.0), ratio)

    def model(self, title: str) -> Any:
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
        graph = helper.make_graph(self._nodes, "survival", inputs, outputs, self._tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], doc_string=title)
        model.ir_version = 10
        return model
