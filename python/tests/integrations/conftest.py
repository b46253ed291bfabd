"""Groups of torch processes over gloo."""

from __future__ import annotations

import multiprocessing
import os
import queue
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import pytest


def _rank(body: Callable[..., Any], store: str, rank: int, size: int, args: Any, out: Any) -> None:
    try:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=size)
        result = body(rank, size, *args)
        dist.barrier()
        out.put((rank, True, result))
        dist.destroy_process_group()
    except BaseException:
        out.put((rank, False, traceback.format_exc()))


def run_ranks(size: int, body: Callable[..., Any], *args: Any, seconds: float = 240) -> list[Any]:
    """Runs ``body(rank, size, *args)`` in torch processes and returns the results by rank."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    results: dict[int, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = [
            context.Process(target=_rank, args=(body, store, rank, size, args, out), daemon=True)
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        failures = []
        try:
            for _ in processes:
                rank, is_well, result = out.get(timeout=seconds)
                results[rank] = result
                if not is_well:
                    failures.append(f"rank {rank}:\n{result}")
                    break
        except queue.Empty:
            failures.append(f"no answer of ranks {sorted(set(range(size)) - set(results))}")
        for process in processes:
            if failures:
                process.kill()
            process.join(timeout=30)
    if failures:
        pytest.fail("\n".join(failures))
    return [results[rank] for rank in range(size)]
