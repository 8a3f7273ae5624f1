"""A run of the command that halts at a phase, there to be killed; the command is in test_killed_run.py."""

import signal
import sys

from sstorch.bench.cli import main
from sstorch.threads import listening

if __name__ == "__main__":
    _, halt, *words = sys.argv
    sys.argv[1:] = words

    def halted(phase: str, done: int, total: int) -> None:
        """Say so and sleep for ever, where the phase is reported for the first time."""
        if phase == halt:
            print("halted", flush=True)
            while True:
                signal.pause()

    with listening(halted):
        main()
