"""What the tests share: groups of processes, and seeds that failures print."""

from __future__ import annotations

import multiprocessing
import os
import queue
import random
import traceback
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

SEEDS = int(os.environ.get("SYNCLINE_PYTHON_SEEDS", "8"))


@pytest.fixture(params=range(SEEDS))
def rng(request: pytest.FixtureRequest) -> Iterator[random.Random]:
    """A generator of random numbers; the id of a failing test has its seed."""
    yield random.Random(request.param)


def _rank(body: Callable[..., Any], name: str, rank: int, size: int, args: Any, out: Any) -> None:
    try:
        import syncline as sl

        with sl.join(f"shm:{name}", rank, size, timeout=30) as group:
            out.put((rank, True, body(group, *args)))
    except BaseException:
        out.put((rank, False, traceback.format_exc()))


def run_ranks(size: int, body: Callable[..., Any], *args: Any) -> list[Any]:
    """Runs ``body(group, *args)`` in ``size`` processes and returns what each returns, by rank."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    name = f"test-{uuid.uuid4().hex}"
    processes = [
        context.Process(target=_rank, args=(body, name, rank, size, args, out), daemon=True)
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    results: dict[int, Any] = {}
    failures = []
    try:
        for _ in processes:
            rank, is_well, result = out.get(timeout=120)
            results[rank] = result
            if not is_well:
                failures.append(f"rank {rank}:\n{result}")
    except queue.Empty:
        failures.append(f"no answer of ranks {sorted(set(range(size)) - set(results))}")
    for process in processes:
        process.join(timeout=30)
        if process.is_alive():
            process.kill()
            failures.append("a process did not end")
    if failures:
        pytest.fail("\n".join(failures))
    return [results[rank] for rank in range(size)]
