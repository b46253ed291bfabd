"""Checkpoints opened for reading: a mapping of names to tensors that stay on disk until indexed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import _native
from ._dtypes import numpy_dtype, torch_dtype
from .errors import CheckpointError

Shape = tuple[int, ...]


class Tensor:
    """One tensor of an open checkpoint; indexing reads just the elements that are asked for."""

    def __init__(self, files: _native.CheckpointFiles, name: str) -> None:
        self._files = files
        self.name = name
        self._element, self.dtype, self.shape = files.spec(name)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole tensor."""
        return int(np.prod(self.shape, dtype=np.int64)) * numpy_bits(self.dtype) // 8

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self[...]
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, index: Any) -> np.ndarray[Any, Any]:
        return self._read(index, numpy_dtype(self.dtype))

    def _read(self, index: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        shards = self._files.shards(self.name, None)
        if len(shards) == 1:
            _, memory, shape, pieces = shards[0]
            if len(pieces) == 1 and pieces[0][1] == self.shape == shape:
                whole = np.asarray(memory).view(dtype).reshape(shape)
                return np.array(whole[index])
        # Elements come from several files: those that are asked for, by what indexing a grid of
        # positions gives in each dimension.
        return _gather(self.shape, index, dtype, shards)

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {self.dtype}, {self.shape})"


def numpy_bits(name: str) -> int:
    """Returns the bits of an element of this type."""
    digits = name.split("_")[0].lstrip("boolfuic")
    return int(digits) if digits else 8


def _basic(shape: Shape, index: Any) -> tuple[tuple[slice, ...], Any]:
    """Returns the box of a tensor that `index` needs, and the index within that box."""
    given = index if isinstance(index, tuple) else (index,)
    basic = all(
        part is Ellipsis or isinstance(part, (slice, int, np.integer)) for part in given
    ) and sum(part is Ellipsis for part in given) <= 1
    if not basic:
        return tuple(slice(0, size) for size in shape), index
    if Ellipsis in given:
        at = given.index(Ellipsis)
        fill = len(shape) - len(given) + 1
        given = given[:at] + (slice(None),) * fill + given[at + 1 :]
    if len(given) > len(shape):
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions")
    given += (slice(None),) * (len(shape) - len(given))
    box: list[slice] = []
    inside: list[slice | int] = []
    for part, size in zip(given, shape):
        if not isinstance(part, slice):
            at = int(part) + size if part < 0 else int(part)
            if not 0 <= at < size:
                raise IndexError(f"index {part} is out of bounds for size {size}")
            box.append(slice(at, at + 1))
            inside.append(0)
            continue
        picked = range(size)[part]
        if not picked:
            box.append(slice(0, 0))
            inside.append(slice(None))
            continue
        low, high = min(picked[0], picked[-1]), max(picked[0], picked[-1])
        box.append(slice(low, high + 1))
        inside.append(slice(None, None, picked.step))
    return tuple(box), tuple(inside)


def _gather(
    shape: Shape, index: Any, dtype: np.dtype[Any], shards: list[_native.ShardMemory]
) -> np.ndarray[Any, Any]:
    box, inside = _basic(shape, index)
    found = np.empty(tuple(part.stop - part.start for part in box), dtype)
    for _, memory, local_shape, pieces in shards:
        local = np.asarray(memory).view(dtype).reshape(local_shape)
        for start, size, place in pieces:
            lows = [max(a, part.start) for a, part in zip(start, box)]
            highs = [min(a + n, part.stop) for a, n, part in zip(start, size, box)]
            if any(low >= high for low, high in zip(lows, highs)):
                continue
            into = tuple(
                slice(low - part.start, high - part.start)
                for low, high, part in zip(lows, highs, box)
            )
            out_of = tuple(
                slice(low - a + p, high - a + p)
                for low, high, a, p in zip(lows, highs, start, place)
            )
            found[into] = local[out_of]
    return np.array(found[inside])


class Checkpoint(Mapping[str, Tensor]):
    """An open checkpoint: names of tensors to tensors.

    Do not change its files while it is open: they are read where they are.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files = _native.CheckpointFiles(path)
        self._names = self._files.names()

    @property
    def metadata(self) -> dict[str, str]:
        """The free text that its files carry."""
        return self._files.metadata

    @property
    def layout(self) -> _native.Layout:
        """How its tensors lie over ranks; all on rank 0 if it is not sharded."""
        return self._files.layout

    @property
    def format(self) -> str:
        """What its files are: ``safetensors``, or ``sharded`` with a file for each rank."""
        return self._files.format

    def __getitem__(self, name: str) -> Tensor:
        return Tensor(self._files, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._files.has(name)

    def torch(self, name: str) -> Any:
        """Returns a tensor of torch with all elements of a tensor."""
        tensor = self[name]
        bits = np.dtype(f"u{numpy_bits(tensor.dtype) // 8}")
        return _to_torch(tensor._read(..., bits), tensor.dtype)

    def state_dict(self, rank: int | None = None) -> dict[str, Any]:
        """Returns tensors of torch by name: all of them, or with ``rank`` that rank's shards."""
        if rank is None:
            return {name: self.torch(name) for name in self}
        layout = self.layout
        if not 0 <= rank < max(layout.world, 1):
            text = f"there is no rank {rank}: the checkpoint has {layout.world}"
            raise CheckpointError(text)
        found = {}
        for name in self:
            for _, memory, shape, _ in self._files.shards(name, rank):
                dtype = self[name].dtype
                bits = np.dtype(f"u{numpy_bits(dtype) // 8}")
                local = np.array(np.asarray(memory).view(bits).reshape(shape))
                found[layout.local_name(name, rank)] = _to_torch(local, dtype)
        return found

    def __repr__(self) -> str:
        return f"Checkpoint({len(self)} tensors, {self.format})"


def _to_torch(bits: np.ndarray[Any, Any], name: str) -> Any:
    import torch

    shape = bits.shape
    return torch.from_numpy(bits.reshape(-1).view(np.uint8)).view(torch_dtype(name)).reshape(shape)


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Opens a checkpoint: a directory, or one safetensors file."""
    return Checkpoint(path)
