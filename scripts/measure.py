"""Seconds, CPU seconds and peak memory of a piece of work, for the scripts that compare speeds."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass
class Cost:
    """What a piece of work took.

    Attributes:
        seconds: by the clock on the wall.
        cpu_seconds: of all threads of this process; on a machine busy with other work they vary less.
        added_mib: peak of the memory above what was taken before; on a GPU its own.
        peak_mib: peak of all memory of the process; on a GPU its own.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    added_mib: float = 0.0
    peak_mib: float = 0.0


@contextmanager
def measured(device: torch.device | str = "cpu") -> Iterator[Cost]:
    """Measure the block; the cost is filled in at its end. Memory of the CPU needs Linux."""
    device, cost = torch.device(device), Cost()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device) / 2**20
    else:
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier runs freed would hide what this one needs
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        before = _status("VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    yield cost
    if on_gpu:
        torch.cuda.synchronize(device)
    cost.seconds, cost.cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    cost.peak_mib = torch.cuda.max_memory_allocated(device) / 2**20 if on_gpu else _status("VmHWM")
    cost.added_mib = cost.peak_mib - before


def where(device: str) -> str:
    """The machine and versions, for the line above a table."""
    if torch.device(device).type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = f"{torch.get_num_threads()} CPU thread" + "s" * (torch.get_num_threads() > 1)
    return f"{name}, torch {torch.__version__}"


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":")) / 1024
