"""A run of the command that halts at a phase, there to be killed; the command is in test_killed_run.py."""

import signal
import sys

from sstorch.bench.cli import main
from sstorch.bench.run_folder import RunFolder


class _Halt:
    """Say so and sleep for ever, where a phase is noted for the first time."""

    def __init__(self, phase: str) -> None:
        self._phase, self._note = phase, RunFolder.note

    def __get__(self, folder: RunFolder, kind: type) -> object:
        def note(phase: str, done: int, total: int) -> None:
            self._note(folder, phase, done, total)
            if phase == self._phase:
                print("halted", flush=True)
                while True:
                    signal.pause()

        return note


if __name__ == "__main__":
    RunFolder.note = _Halt(sys.argv[1])  # type: ignore[assignment, method-assign]
    sys.argv[1:] = sys.argv[2:]
    main()
