"""How many threads of compiled code may run at once, and work on chips shared by them."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def by_cores(count: int, work: Callable[[range], T]) -> list[T]:
    """What `work` makes of 0 .. count - 1, dealt out over the cores: a thread and a result for each share."""
    cores = min(available_cores(), count)
    with ThreadPoolExecutor(cores) as pool:
        return list(pool.map(work, (range(i, count, cores) for i in range(cores))))
