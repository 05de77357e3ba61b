"""Threads that share a step's chips. Within a segment no chip reads another's streams, so the order of chips cannot change a bit.

A segment ends when every chip has done it. Chips are claimed in shares, two for a thread, each thread its own first (their memory
is in its cache), so a thread whose core is busy with other work leaves shares to the others.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ticktrue.cores import available_cores
from ticktrue.errors import InputError
from ticktrue.execute.interpreter_kernel import run
from ticktrue.execute.lower import Lowered
from ticktrue.kernels.environment import check_float_environment


class Workers:
    """`threads` threads, the caller's included (default: the cores of this process), at most one per chip.

    Raises:
        InputError: T363 for fewer than one thread.
    """

    def __init__(self, threads: int | None, chips: int) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"expected at least 1 thread, found {threads}", code="T363", where="threads",
                             hint="leave it out to use the cores of this process")  # fmt: skip
        self.threads = min(threads or available_cores(), chips)
        self.shares = 1 if self.threads == 1 else min(2 * self.threads, chips)
        self._pool = ThreadPoolExecutor(self.threads - 1, "ticktrue-chips") if self.threads > 1 else None

    def run(self, lowered: Lowered, *args: object) -> None:
        """One step: what `run` of the interpreter says, with `args` its arguments from `words` to `draw`.

        Raises:
            EnvironmentProblem: T417 if a thread does not round to nearest or flushes subnormal numbers.
        """
        segments = len(lowered.bounds) - 1
        claimed = np.zeros(segments * self.shares, dtype=np.int64)
        done = np.zeros(segments, dtype=np.int64)

        def work(worker: int) -> None:
            check_float_environment()
            at = 0
            while at < segments:
                at = run(lowered.steps, lowered.address, lowered.source, lowered.table, *args,
                         lowered.bounds, claimed, done, worker * self.shares // self.threads, at)  # fmt: skip
                if at < segments:  # another thread lost its core: leave it this one
                    os.sched_yield() if hasattr(os, "sched_yield") else None

        others = [self._pool.submit(work, w) for w in range(1, self.threads)] if self._pool else []
        work(0)
        for other in others:
            other.result()
