"""Layouts of torch's DTensors: what every rank holds, computed alike on every rank."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ._dtypes import name_of_torch
from ._native import Layout
from .errors import LayoutError

#: Elements of one dimension that lie side by side: where they start, and how many there are.
Run = tuple[int, int]
Shard = tuple[list[int], list[tuple[list[int], list[int], list[int]]]]


def _part(runs: list[Run], start: int, stop: int) -> list[Run]:
    """Returns the elements ``start`` to ``stop`` of those in ``runs``."""
    found = []
    at = 0
    for first, size in runs:
        low, high = max(start, at), min(stop, at + size)
        if low < high:
            found.append((first + low - at, high - low))
        at += size
    return found


def _chunk(runs: list[Run], chunks: int, index: int) -> list[Run]:
    """Returns chunk ``index``, as ``torch.chunk`` splits: 3, 3, 3, 1 for ten over four."""
    total = sum(size for _, size in runs)
    size = -(-total // chunks)
    return _part(runs, min(index * size, total), min((index + 1) * size, total))


def _split(runs: list[Run], placement: Any, chunks: int, index: int) -> list[Run]:
    factor = getattr(placement, "split_factor", None)
    if factor is None:
        return _chunk(runs, chunks, index)
    # As if the tensor had been split by ``factor`` first: each of those parts is split.
    parts = (_chunk(runs, factor, part) for part in range(factor))
    return [run for part in parts for run in _chunk(part, chunks, index)]


def _merged(runs: list[Run]) -> list[Run]:
    merged: list[Run] = []
    for start, size in runs:
        if merged and sum(merged[-1]) == start:
            merged[-1] = (merged[-1][0], merged[-1][1] + size)
        else:
            merged.append((start, size))
    return merged


def shard_of(
    name: str,
    shape: Sequence[int],
    mesh_shape: Sequence[int],
    placements: Sequence[Any],
    coordinate: Sequence[int],
) -> Shard:
    """Returns the local shape at a coordinate of a mesh, and the pieces there.

    A piece is its start in the whole tensor, its size, and its start in the local tensor.
    """
    dims: list[list[Run]] = [[(0, size)] for size in shape]
    for chunks, index, placement in zip(mesh_shape, coordinate, placements):
        if placement.is_replicate():
            continue
        dim = getattr(placement, "dim", None)
        if placement.is_partial() or dim is None:
            text = f"tensor `{name}`: {placement} is no place of elements: redistribute it first"
            raise LayoutError(text)
        dim %= max(len(shape), 1)
        dims[dim] = _split(dims[dim], placement, chunks, index)
    dims = [_merged(runs) for runs in dims]
    pieces = []
    for runs in itertools.product(*(_placed(runs) for runs in dims)):
        start = [first for first, _, _ in runs]
        pieces.append((start, [size for _, size, _ in runs], [local for _, _, local in runs]))
    return [sum(size for _, size in runs) for runs in dims], pieces


def _placed(runs: list[Run]) -> list[tuple[int, int, int]]:
    """Returns the runs with the place of each in the local tensor."""
    placed = []
    at = 0
    for start, size in runs:
        placed.append((start, size, at))
        at += size
    return placed


def _root(mesh: Any, placements: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Returns the whole mesh that ``mesh`` is a part of, and placements over that.

    A tensor on a part of a mesh is the same on every other part.
    """
    from torch.distributed.tensor import Replicate

    root = mesh._get_root_mesh() if hasattr(mesh, "_get_root_mesh") else mesh
    names, root_names = mesh.mesh_dim_names, root.mesh_dim_names
    if root is mesh or root == mesh or not names or not root_names:
        return mesh, list(placements)
    if not set(names) <= set(root_names):
        # Dimensions that were flattened into one cannot be told apart here.
        return mesh, list(placements)
    by_name = dict(zip(names, placements))
    return root, [by_name.get(name, Replicate()) for name in root_names]


class Shards:
    """What every rank holds of tensors of torch; equal ones are computed once."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.known: dict[Any, list[tuple[int, list[int], Any]]] = {}
        self.ranks: set[int] = set()

    def of(
        self, name: str, shape: Sequence[int], mesh: Any, placements: Sequence[Any]
    ) -> list[tuple[int, list[int], Any]]:
        """Returns rank, local shape and pieces of every rank that holds something."""
        mesh, placements = _root(mesh, placements)
        ranks = mesh.mesh.flatten().tolist()
        self.ranks.update(ranks)
        key = (tuple(shape), tuple(mesh.mesh.shape), tuple(ranks), tuple(placements))
        if key not in self.known:
            sizes = list(mesh.mesh.shape)
            found = []
            for rank, coordinate in zip(ranks, itertools.product(*map(range, sizes))):
                local, pieces = shard_of(name, shape, sizes, placements, coordinate)
                if pieces and 0 not in local:
                    found.append((rank + self.offset, local, pieces))
            self.known[key] = found
        return self.known[key]


def whole(shape: Sequence[int], ranks: Sequence[int]) -> list[tuple[int, list[int], Any]]:
    """Returns the shards of a tensor that each of ``ranks`` holds all of."""
    zeros = [0] * len(shape)
    return [(rank, list(shape), [(zeros, list(shape), zeros)]) for rank in ranks]


def local_of(tensor: Any) -> Any:
    """Returns what this rank holds of a tensor of torch."""
    local = getattr(tensor, "_local_tensor", None)
    return tensor.detach() if local is None else local.detach()


def layout_from_dtensors(state_dict: Mapping[str, Any], offset: int = 0) -> Layout:
    """Returns the layout of DTensors and plain tensors of torch.

    Every rank that has the same names on the same meshes gets the same layout; nothing is sent.
    Rank ``r`` of torch is rank ``r + offset``. Plain tensors are taken to be the same on every
    rank of the meshes, or of the job where there is no mesh.
    """
    shards = Shards(offset)
    tensors: list[tuple[str, str, list[int], list[tuple[int, list[int], Any]]]] = []
    plain = []
    for name, tensor in state_dict.items():
        shape = list(tensor.shape)
        if hasattr(tensor, "_local_tensor"):
            mesh = tensor.device_mesh
            held = shards.of(name, shape, mesh, tensor.placements)
            _check_local(name, tensor, shards, held)
        else:
            held = []
            plain.append(len(tensors))
        tensors.append((name, name_of_torch(tensor.dtype), shape, held))
    ranks = [rank + offset for rank in sorted(shards.ranks) or range(_world())]
    for at in plain:
        tensors[at][3].extend(whole(tensors[at][2], ranks))
    return Layout._from_shards(tensors)


def _check_local(
    name: str, tensor: Any, shards: Shards, held: list[tuple[int, list[int], Any]]
) -> None:
    """Refuses a tensor whose local part is not what its placements say."""
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    rank = dist.get_rank() + shards.offset
    expected = next((local for other, local, _ in held if other == rank), None)
    local = list(tensor._local_tensor.shape)
    if expected is None:
        if tensor._local_tensor.numel() == 0:
            return
        expected = [0]
    if expected != local:
        text = f"tensor `{name}`: this rank holds {local}, its placements say {expected}"
        raise LayoutError(text)


def _world() -> int:
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
