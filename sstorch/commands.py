"""Entry points of the commands.

Help, versions and Ctrl-C are answered before torch loads, which takes seconds.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from sstorch._version import __version__
from sstorch.exceptions import EXIT_INTERRUPTED, exit_codes
from sstorch.usage import configuration

_HELP = """sstorch trains and cross-validates soft survival trees; without arguments, on GBSG2.

  sstorch NAME=VALUE ...      one run; -m runs every combination of values with commas
  sstorch --cfg job           the settings and their values
  sstorch --version           version of the package
  sstorch-report FOLDER       report of a run, a sweep or a study

  sstorch dataset=csv dataset.path=cohort.csv dataset.time=days dataset.event=died
  sstorch model.depth=1 model.leaf=weibull model.trainer.macro_iterations=5
  sstorch model=custom model._target_=my_module.MyTree 'imports=[my_module]'

Choices of the groups:
{groups}

Settings of a model are the parameters of its class, such as sstorch.SoftSurvivalTree."""


def help_text() -> str:
    """Usage of the ``sstorch`` command, and the choices of its groups."""
    lines = []
    for group in ("dataset", "model", "cv", "logger", "experiment"):
        folder = configuration() / group
        files = [path.name.removesuffix(".yaml") for path in folder.iterdir()] if folder.is_dir() else []
        more = ["csv", "NAME"] if group == "dataset" else []
        lines.append(f"  {group + '=':<12} {' '.join([*sorted(files), *more])}")
    return _HELP.format(groups="\n".join(lines))


@contextmanager
def _interruptible(command: str) -> Iterator[None]:
    """End with one line if Ctrl-C comes while a command starts, and silently if the output is closed."""
    try:
        with exit_codes(command, (BrokenPipeError,)):
            yield
    except KeyboardInterrupt:
        print(f"\n{command}: interrupted before it began; nothing was written", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _main(module: str) -> Callable[[], None]:
    """``main`` of a module, loaded without a search for garbage: a quarter of the time."""
    gc.disable()
    try:
        main: Callable[[], None] = import_module(module).main
    finally:
        gc.enable()
    return main


def sstorch() -> None:
    """Train and cross-validate; see :mod:`sstorch.bench.cli`."""
    words = sys.argv[1:]
    with _interruptible("sstorch"):
        if {"--help", "-h"} & set(words):
            print(help_text(), flush=True)
            return
        if "--version" in words:
            print(f"sstorch {__version__}", flush=True)
            return
        _main("sstorch.bench.cli")()


def report() -> None:
    """Write the report of a run or a study; see :mod:`sstorch.bench.reporting`."""
    with _interruptible("sstorch-report"):
        _main("sstorch.bench.reporting")()


if __name__ == "__main__":
    sstorch()
