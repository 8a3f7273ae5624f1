"""How the kernels are compiled: once a machine, and kept on disk, in a folder named by a digest of all files.

numba looks at the file of a function alone and would not notice a change of a function that it calls.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar, cast

import numba
from llvmlite import binding
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.misc.appdirs import AppDirs

from sstorch.exceptions import warn

F = TypeVar("F", bound=Callable[..., Any])

# Products and sums may be fused. Sums over rows may also be taken in any order, that of the machine code. The
# least is that of numbers of which none is nan.
_ELEMENTWISE, _SUMS, _LEAST = {"contract"}, {"contract", "reassoc", "nsz"}, {"nnan", "nsz"}


@cache
def cache_folder() -> Path:
    """Folder of the compiled kernels, ``NUMBA_CACHE_DIR`` or the user's cache, and in it one a version."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].glob("*/compiled/*.py")):
        digest.update(path.read_bytes())
    folder = Path(numba.config.CACHE_DIR or AppDirs("sstorch").user_cache_dir)
    if not (numba.config.CACHE_DIR or folder.is_absolute()):  # the XDG specification ignores such a variable
        folder = Path.home() / ".cache" / "sstorch"
    return folder / digest.hexdigest()[:16]


@cache
def _can_be_written(folder: Path) -> bool:
    """Whether machine code can be kept in a folder; a warning where it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError as error:
        warn(
            f"compiled code cannot be kept in {folder} ({error}), so that each process compiles anew; set "
            "NUMBA_CACHE_DIR to a folder that can be written",
            RuntimeWarning,
        )
        return False


def address(function: Any, signature: Any) -> int:
    """Where the machine code of a kernel for a signature is, compiled or loaded now; for `call`."""
    function.compile(signature)
    overload = function.overloads[signature.args]
    return int(overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name))


@intrinsic
def call(typingctx: Any, place: Any, arguments: Any) -> Any:
    """Call the kernel at an `address`, which returns nothing, with a tuple of arguments."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = tuple(signature.args[1].types)
        pointer = context.call_conv.get_function_type(types.none, kinds).as_pointer()
        function = builder.inttoptr(values[0], pointer)
        parts = [builder.extract_value(values[1], k) for k in range(len(kinds))]
        _called(context, builder, function, types.none(*kinds), parts)
        return context.get_dummy_value()

    return types.none(types.int64, arguments), codegen


def _called(context: Any, builder: Any, function: Any, signature: Any, values: Any) -> Any:
    """Code for a call of a kernel, whose errors are raised again."""
    returned, convention = signature.return_type, context.call_conv
    status, result = convention.call_function(builder, function, returned, signature.args, values)
    with builder.if_then(status.is_error, likely=False):
        convention.return_status_propagate(builder, status)
    return result


def _njit(*signature: Any, cached: bool = True, **options: Any) -> Callable[[F], F]:
    """Compile at the first call, or for a signature at once: what has one is compiled for no other types."""

    def decorate(function: F) -> F:
        # The place is chosen when a function is declared; other users of numba keep theirs.
        given = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(cache_folder())
        try:
            made: F = numba.njit(
                *signature,
                error_model="numpy",
                nogil=True,
                cache=cached and _can_be_written(cache_folder()),
                no_cfunc_wrapper=True,
                **options,
            )(function)
        finally:
            numba.config.CACHE_DIR = given
        # One machine code for all integers: numba would make another for each constant argument.
        template: Any = made.get_call_template  # type: ignore[attr-defined]
        made.get_call_template = lambda args, kws: template(tuple(map(types.unliteral, args)), kws)  # type: ignore[attr-defined]
        return made

    return decorate


# What Python calls. All else is called by kernels alone; called from Python it crashes.
entry = _njit()
_INNER = {"no_cpython_wrapper": True}
# Kernels that make arrays, or return them.
compiled = _njit(**_INNER)
# The others do not count references to the arrays that they are given, a fifth of the time of training. Such
# a kernel does not compile if it makes an array, and must not return one.
_BORROWING = {"_nrt": False, **_INNER}
elementwise = _njit(fastmath=_ELEMENTWISE, **_BORROWING)
compare = _njit(fastmath=_LEAST, **_BORROWING)
# The same, by their names and not their files: what is made from functions of users.
of_users = partial(_njit, fastmath=_ELEMENTWISE, **_BORROWING)
# Functions of numbers that become a part of the loops that call them.
inlined = _njit(fastmath=_ELEMENTWISE, forceinline=True, **_BORROWING)


@intrinsic
def take(typingctx: Any, queue: Any) -> Any:
    """The next number from ``queue`` (1,), which no other thread gets; it counts them."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        counter = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", counter, context.get_constant(types.int64, 1), "monotonic")

    return types.int64(queue), codegen


@intrinsic
def borrowed(typingctx: Any, value: Any) -> Any:
    """The same array or tuple, references to which are not counted: a kernel has them while it runs."""

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


def kernel(signature: Any, makes_arrays: bool = False) -> Callable[[F], F]:
    """A kernel for one signature, which others call by a symbol: numba would compile it in each of them."""

    def decorate(function: F) -> F:
        made: Any = _njit(signature, fastmath=_SUMS, **(_INNER if makes_arrays else _BORROWING))(function)
        overload, symbol = made.overloads[signature.args], f"{function.__module__}.{function.__name__}"
        binding.add_symbol(symbol, overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name))

        def codegen(context: Any, builder: Any, given: Any, values: Any) -> Any:
            kind = context.call_conv.get_function_type(signature.return_type, signature.args)
            callee = cgutils.get_or_insert_function(builder.module, kind, symbol)
            return _called(context, builder, callee, signature, values)

        def call(typingctx: Any, *arguments: Any) -> Any:
            return signature, codegen

        own = inspect.signature(function)
        typed = inspect.Parameter("typingctx", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        call.__signature__ = own.replace(parameters=[typed, *own.parameters.values()])  # type: ignore[attr-defined]
        caller: Any = intrinsic(call)
        caller.py_func = function
        return cast(F, caller)

    return decorate


def entry_kernel(signature: Any) -> Callable[[F], F]:
    """A kernel that Python calls."""
    return _njit(signature, fastmath=_SUMS)
