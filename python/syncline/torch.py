"""torch: DTensors to other meshes, and refits of state dicts in place."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from . import _native
from ._dtensor import Shards, layout_from_dtensors, local_of
from ._dtypes import name_of_torch
from .errors import GroupError

__all__ = ["default_group", "redistribute", "refit"]

_groups: dict[int, _native.Group] = {}


def default_group(timeout: float = 60.0) -> _native.Group:
    """Returns the group of all ranks of torch's default process group, joined once.

    Every rank of that must call it. Without torch's process group, torchrun's variables say where
    to meet.
    """
    process = os.getpid()
    if process not in _groups:
        _groups[process] = _join(timeout)
    return _groups[process]


def _join(timeout: float) -> _native.Group:
    if not dist.is_initialized():
        return _native.join(timeout=timeout)
    rank, size = dist.get_rank(), dist.get_world_size()
    said: list[Any] = [None] * size
    dist.all_gather_object(said, (_place(), uuid.uuid4().hex, tcp_address() if rank == 0 else ""))
    places, names, addresses = zip(*said)
    if len(set(places)) == 1:
        return _native.join(f"shm:torch-{names[0]}", rank, size, timeout=timeout)
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return _native.join(None, rank, size, token=names[0], timeout=timeout)
    return _native.join(addresses[0], rank, size, token=names[0], timeout=timeout)


def _place() -> tuple[str, int]:
    """Returns what processes have in common that can share memory: kernel and ``/dev/shm``."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip(), os.stat("/dev/shm").st_dev


def tcp_address(name: str = "torch") -> str:
    """Returns an address of this host at which other hosts can meet it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: this asks which interface leads to other hosts.
            probe.connect(("192.0.2.1", 9))
            host = probe.getsockname()[0]
        except OSError:
            host = socket.gethostbyname(socket.gethostname())
    with socket.create_server(("", 0)) as free:
        return f"tcp://{host}:{free.getsockname()[1]}/{name}"


def redistribute(
    dtensor: DTensor,
    device_mesh: Any,
    placements: Sequence[Any],
    group: _native.Group | None = None,
) -> DTensor:
    """Returns the DTensor with other placements, also on another mesh.

    The meshes may have other sizes and other ranks. Every rank of either mesh calls it: a rank
    outside the source mesh passes the DTensor that it gets there, with nothing in it.
    """
    group = group or default_group()
    # All ranks of the group take part, whether or not they hold something.
    source = layout_from_dtensors({"tensor": dtensor})
    shape = list(dtensor.shape)
    shards = Shards()
    held = shards.of("tensor", shape, device_mesh, placements)
    target = _native.Layout._from_shards(
        [("tensor", name_of_torch(dtensor.dtype), shape, held)]
    )
    mine = next((local for rank, local, _ in held if rank == group.rank), None)
    local = torch.empty(mine if mine is not None else [0], dtype=dtensor.dtype)
    prepared = group.prepare(source, target)
    sources = {"tensor": local_of(dtensor)} if "tensor" in prepared.sources else {}
    targets = {"tensor": local} if mine is not None else {}
    prepared.run(sources, targets)
    if mine is None and device_mesh.get_coordinate() is not None:
        # A rank of the mesh with an empty part of the tensor.
        local = torch.empty(_empty_shape(shape, device_mesh, placements), dtype=dtensor.dtype)
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local, device_mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
    )


def _empty_shape(shape: list[int], mesh: Any, placements: Sequence[Any]) -> list[int]:
    from ._dtensor import shard_of

    local, _ = shard_of("tensor", shape, list(mesh.mesh.shape), placements, mesh.get_coordinate())
    return local


def refit(
    src_state_dict: Mapping[str, Any],
    dst_state_dict: Mapping[str, Any],
    group: _native.Group | None = None,
    delta: bool = False,
    convert: Any = None,
    timeout: float | None = None,
    progress: Any = None,
) -> _native.RefitStats:
    """Writes the values of one state dict into the tensors of another, in place.

    Both have DTensors or plain tensors by the same names. Every rank passes both, with DTensors
    of all meshes: those of meshes that it is not in have nothing in them there.
    """
    group = group or default_group()
    prepared = group.prepare(
        layout_from_dtensors(src_state_dict),
        layout_from_dtensors(dst_state_dict),
        convert=convert,
        delta=delta,
    )
    held_before, held_after = prepared.sources, prepared.targets
    sources = {name: local_of(src_state_dict[name]) for name in held_before}
    targets = {name: local_of(dst_state_dict[name]) for name in held_after}
    missing = [name for name in targets if targets[name].numel() == 0]
    if missing:
        raise GroupError(f"rank {group.rank} has no memory for {missing}")
    return prepared.run(sources, targets, timeout=timeout, progress=progress)
