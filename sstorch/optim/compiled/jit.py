"""How the kernels are compiled: once a machine, and kept on disk.

numba keeps compiled functions next to their source or, where that cannot be written, in the user's cache; it
looks at the file of a function alone and would not notice that a function which it calls has changed. The
kernels therefore have a folder whose name changes with any of their files.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

# Products and sums may be fused. Sums over rows may also be taken in any order, which lets them be vectors;
# the order is then part of the machine code, so that repetitions agree to the last bit.
_ELEMENTWISE = {"contract"}
_SUMS = {"contract", "reassoc", "nsz"}
# The least of numbers of which none is nan, zeros being equal.
_LEAST = {"nnan", "nsz"}


def _user_cache() -> Path:
    """Where the platform keeps what can be made again."""
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def cache_folder() -> Path:
    """Folder of the compiled kernels, ``NUMBA_CACHE_DIR`` or the user's cache, and in it one a version."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].glob("*/compiled/*.py")):
        digest.update(path.read_bytes())
    given = numba.config.CACHE_DIR
    return (Path(given) if given else _user_cache() / "sstorch") / digest.hexdigest()[:16]


def _njit(**options: Any) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        # The place is chosen when a function is declared; other users of numba keep theirs.
        given = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(cache_folder())
        try:
            made: F = numba.njit(
                error_model="numpy", nogil=True, cache=True, no_cfunc_wrapper=True, **options
            )(function)
        finally:
            numba.config.CACHE_DIR = given
        return made

    return decorate


# What Python calls. All else is called by kernels alone: the code that turns its arguments from objects of
# Python into numbers would be a fifth of all that is compiled. (Called from Python nevertheless, it crashes.)
entry = _njit()
_INNER = {"no_cpython_wrapper": True}
# Kernels that make arrays, or return them.
compiled = _njit(**_INNER)
# The others do not count references to the arrays that they are given: numba would at every slice, by an
# atomic instruction, which took a fifth of the time of training. Such a kernel does not compile if it makes
# an array, and must not return one.
_BORROWING = {"_nrt": False, **_INNER}
borrowing = _njit(**_BORROWING)
elementwise = _njit(fastmath=_ELEMENTWISE, **_BORROWING)
summing = _njit(fastmath=_SUMS, **_BORROWING)
compare = _njit(fastmath=_LEAST, **_BORROWING)
# Functions of numbers that become a part of the loops that call them.
inlined = _njit(fastmath=_ELEMENTWISE, forceinline=True, **_BORROWING)


def address(function: Any, signature: Any) -> int:
    """Where the machine code of a compiled function is, made or loaded for a signature."""
    function.compile(signature)
    made = function.overloads[signature.args]
    found: int = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    return found


def call_by_address(*signatures: Any) -> Any:
    """A function ``call(address, arguments)`` for kernels of some signatures, arguments in a tuple.

    What is called from many places is so compiled once. Arguments of other types do not compile.
    """
    returns = signatures[0].return_type

    @intrinsic
    def call(typingctx: Any, address: Any, arguments: Any) -> Any:
        if tuple(arguments.types) not in {signature.args for signature in signatures}:
            raise TypingError(f"a kernel called by address takes {signatures}, not {arguments.types}")

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds = tuple(signature.args[1].types)
            pointer = context.call_conv.get_function_type(returns, kinds).as_pointer()
            function = builder.inttoptr(values[0], pointer)
            parts = [builder.extract_value(values[1], k) for k in range(len(kinds))]
            status, result = context.call_conv.call_function(builder, function, returns, kinds, parts)
            with builder.if_then(status.is_error, likely=False):
                context.call_conv.return_status_propagate(builder, status)
            return result

        return returns(types.int64, arguments), codegen

    return call


@intrinsic
def take(typingctx: Any, queue: Any) -> Any:
    """The next number from ``queue`` (1,), which no other thread gets; it counts them."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        counter = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", counter, context.get_constant(types.int64, 1), "monotonic")

    return types.int64(queue), codegen


@intrinsic
def borrowed(typingctx: Any, value: Any) -> Any:
    """The same array or tuple, references to which are not counted: a kernel has them while it runs.

    A call counts references to all arrays of a tuple, which takes longer than the work on small ones.
    """

    def uncounted(context: Any, builder: Any, kind: Any, counted: Any) -> Any:
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, counted)
            for owner in ("meminfo", "parent"):
                setattr(array, owner, getattr(array, owner).type(None))
            return array._getvalue()
        if isinstance(kind, types.BaseTuple):
            for place, part in enumerate(kind):
                bare = uncounted(context, builder, part, builder.extract_value(counted, place))
                counted = builder.insert_value(counted, bare, place)
        return counted

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return uncounted(context, builder, signature.args[0], arguments[0])

    return value(value), codegen


@intrinsic
def to_double(typingctx: Any, bits: Any) -> Any:
    """The double with the given bits."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def to_bits(typingctx: Any, value: Any) -> Any:
    """The bits of a double."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def select(typingctx: Any, condition: Any, first: Any, second: Any) -> Any:
    """The first value where the condition holds, else the second, without a branch."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return types.float64(types.boolean, types.float64, types.float64), codegen
