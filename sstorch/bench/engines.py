"""Engines that carry out the tasks of a study: this process, several processes, or a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits

from sstorch.checks import check_device
from sstorch.exceptions import ConfigError
from sstorch.installing import install_extra
from sstorch.threads import torch_threads

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Failure:
    """A task that gave no result."""

    error: str  # in one line
    traceback: str


Results = Iterator[tuple[T, R | Failure, float]]


class Engine(ABC):
    """Carries out tasks, as many at a time as it can."""

    @abstractmethod
    def carry_out(self, execute: Callable[[T, str], R], tasks: Iterator[T]) -> Results[T, R]:
        """Call ``execute(task, device)``, a function of a module, for every task.

        Tasks are taken one by one, when there is somewhere to carry the next one out. Yields each when it is
        finished, with its result or its failure, and the seconds it took.
        """


@dataclass(frozen=True)
class Serial(Engine):
    """One after the other in this process, on one thread: the same results on every machine of a kind."""

    device: str = "cpu"

    def __str__(self) -> str:
        return f"one after the other on {self.device}"

    def carry_out(self, execute: Callable[[T, str], R], tasks: Iterator[T]) -> Results[T, R]:
        """See :class:`Engine`."""
        with torch_threads(1), threadpool_limits(1):
            for task in tasks:
                yield task, *_timed(execute, task, self.device)


@dataclass(frozen=True)
class Processes(Engine):
    """One process for each device that is named, each on one thread."""

    # ``("cpu",) * 4`` are four processes on four cores, ``("cuda:0", "cuda:1")`` one for each GPU
    devices: tuple[str, ...]

    def __str__(self) -> str:
        return f"processes on {', '.join(self.devices)}"

    def carry_out(self, execute: Callable[[T, str], R], tasks: Iterator[T]) -> Results[T, R]:
        """See :class:`Engine`."""
        context = multiprocessing.get_context("spawn")
        processes: dict[Connection, SpawnProcess] = {}
        running: dict[Connection, T] = {}
        try:
            for device in self.devices:
                ours, theirs = context.Pipe()
                processes[ours] = context.Process(target=_serve, args=(theirs, device), daemon=True)
                processes[ours].start()
                theirs.close()
            idle = list(processes)
            while True:
                while idle and (task := next(tasks, None)) is not None:
                    idle[-1].send((execute, task))
                    running[idle.pop()] = task
                if not running:
                    return
                for connection in wait(list(running)):
                    assert isinstance(connection, Connection)
                    result, seconds = connection.recv()
                    idle.append(connection)
                    yield running.pop(connection), result, seconds
        except (EOFError, ConnectionError) as error:
            raise RuntimeError(
                "a process of the study was killed, perhaps for lack of memory; what is stored is kept: run "
                "the study again with fewer processes"
            ) from error
        finally:
            for connection, process in processes.items():
                connection.close()
                process.terminate()
                process.join()


@dataclass(frozen=True)
class Ray(Engine):
    """A task of a Ray cluster for each; results come back to this process, which alone needs the folder."""

    # of the cluster, ``"auto"`` for the one this machine belongs to; None starts one here
    address: str | None = None
    gpus: float = 0.0  # of each task; with any, tasks run on ``"cuda"``

    def __str__(self) -> str:
        return f"Ray cluster {self.address or 'of this machine'}"

    def carry_out(self, execute: Callable[[T, str], R], tasks: Iterator[T]) -> Results[T, R]:
        """See :class:`Engine`."""
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                f"engine 'ray' needs Ray: {install_extra('cluster')}, or choose 'processes'"
            ) from error
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False)
            except ConnectionError as error:
                raise ConfigError(f"no Ray cluster at {self.address!r}: {error}") from error
        remote: Any = ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=2)(_on_one_thread)
        device = "cuda" if self.gpus else "cpu"
        kind = "GPU" if self.gpus else "CPU"
        slots = max(1, int(ray.cluster_resources().get(kind, 0) / (self.gpus or 1)))
        running: dict[Any, T] = {}
        while True:
            while len(running) < slots and (task := next(tasks, None)) is not None:
                running[remote.remote(execute, task, device)] = task
            if not running:
                return
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            task = running.pop(done)
            try:
                result, seconds = ray.get(done)
            except ray.exceptions.RayError as error:
                result, seconds = Failure(f"lost by the cluster: {type(error).__name__}", str(error)), 0.0
            yield task, result, seconds


def make_engine(name: str, n_jobs: int, device: str, address: str | None = None) -> Engine:
    """The engine of a name, ``"processes"`` or ``"ray"``; of device "cuda" at most one process a GPU."""
    if n_jobs < 1:
        raise ConfigError(f"study.n_jobs must be at least 1, got {n_jobs}")
    if name == "ray":
        return Ray(address, gpus=float(device.startswith("cuda")))
    if name != "processes":
        raise ConfigError(f"study.engine must be 'processes' or 'ray', got {name!r}")
    check_device(device)
    if device == "cuda":
        devices = tuple(f"cuda:{number}" for number in range(min(n_jobs, torch.cuda.device_count())))
    else:
        devices = (device,) * n_jobs
    return Serial(devices[0]) if len(devices) == 1 else Processes(devices)


def _serve(connection: Connection, device: str) -> None:
    """Carry out the tasks that come through a pipe, until it is closed or the study ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that runs the study
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError):
        while True:
            execute, task = connection.recv()
            connection.send(_on_one_thread(execute, task, device))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _on_one_thread(execute: Callable[[T, str], R], task: T, device: str) -> tuple[R | Failure, float]:
    torch.set_num_threads(1)
    with threadpool_limits(1):
        return _timed(execute, task, device)


def _timed(execute: Callable[[T, str], R], task: T, device: str) -> tuple[R | Failure, float]:
    begin = time.perf_counter()
    try:
        result: R | Failure = execute(task, device)
    except Exception as error:  # reported; the other tasks go on
        result = Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
    return result, time.perf_counter() - begin
