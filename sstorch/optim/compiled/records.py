"""Numbers of the records of a step, and how they are written."""

from __future__ import annotations

import math

from sstorch.optim.compiled.jit import borrowing
from sstorch.optim.compiled.matrix import fill

# Numbers of the records of a step.
STEP, STATUS, EVALUATIONS, ROWS, SHARE, BEFORE, AFTER, NORM = range(8)
# Whether what a step of the root ended at is E, but for penalties on leaves.
IS_WHOLE = 8
N_RECORDS = 9
NONE, BN, WLR, LN, JOINT_STEP, SKIP = range(6)


@borrowing
def write_record(record, step, result, rows, share):
    """Record a step."""
    record[STEP] = step
    record[STATUS], record[EVALUATIONS] = result.status, result.evaluations
    record[ROWS], record[SHARE] = rows, share
    record[BEFORE], record[AFTER], record[NORM] = result.before, result.value, result.norm


@borrowing
def write_skip(record, rows, share):
    """Record a step that was not taken."""
    fill(record, N_RECORDS, math.nan)
    record[STEP], record[EVALUATIONS] = SKIP, 0
    record[ROWS], record[SHARE] = rows, share
