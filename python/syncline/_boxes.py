"""Boxes of parameters that are copies of boxes of tensors: fitted to numbers of elements."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._learn import Specs

Array = np.ndarray[Any, Any]
Box = tuple[slice, ...]


@dataclass(frozen=True)
class Span:
    """Positions along one dimension: ``start``, ``start + step`` and so on."""

    start: int
    count: int
    step: int = 1

    def slice(self) -> slice:
        """Returns the same positions as a slice."""
        stop = self.start + self.count * self.step
        return slice(self.start, stop if stop >= 0 else None, self.step)

    def __str__(self) -> str:
        of = self.slice()
        end = "" if of.stop is None else of.stop
        return f"{of.start}:{end}" + (f":{of.step}" if of.step != 1 else "")


@dataclass(frozen=True)
class Place:
    """A box of a tensor and the box of a parameter that is a copy of it.

    ``axes`` has for each dimension of the tensor the dimension of the parameter that it lies
    along, or None where the box has one element in it.
    """

    tensor: str
    source: tuple[Span, ...]
    parameter: str
    target: tuple[Span, ...]
    axes: tuple[int | None, ...]

    @property
    def counts(self) -> list[int]:
        """The elements along each dimension of the tensor."""
        return [span.count for span in self.source]

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.counts)

    def source_slices(self) -> Box:
        """Returns the box of the tensor."""
        return tuple(span.slice() for span in self.source)

    def view(self, parameter: Any) -> Any:
        """Returns the view of the parameter, with the tensor's dimensions in their order."""
        part = parameter[(*(span.slice() for span in self.target), ...)]
        order = [axis for axis in self.axes if axis is not None]
        rest = [axis for axis in range(len(self.target)) if axis not in order]
        turn = part.permute if hasattr(part, "permute") else part.transpose
        moved = turn(*order, *rest) if len(self.target) > 1 else part
        for _ in rest:
            moved = moved.squeeze(-1)
        return moved[(*(None if axis is None else slice(None) for axis in self.axes), ...)]

    def pieces(self) -> list[tuple[list[int], list[int], list[int]]]:
        """Returns the boxes of the tensor without steps: start, size and place in the view."""
        along = []
        for span in self.source:
            if span.step == 1:
                along.append([(span.start, span.count, 0)])
            else:
                along.append([(span.start + at * span.step, 1, at) for at in range(span.count)])
        parts = [[list(numbers) for numbers in zip(*part)] for part in itertools.product(*along)]
        return [(part[0], part[1], part[2]) if part else ([], [], []) for part in parts]

    def __repr__(self) -> str:
        target = ", ".join(str(span) for span in self.target)
        source = ", ".join(str(span) for span in self.source)
        return f"Place({self.parameter}[{target}] = {self.tensor}[{source}])"


def fit(parameter: str, numbers: Array, specs: Specs) -> Iterator[tuple[str, Place]]:
    """Finds the places in a parameter, of which ``numbers`` has the elements' numbers or -1."""
    if numbers.ndim == 0:
        fitted = [place for _, place in fit(parameter, numbers.reshape(1), specs)]
        for place in fitted:
            yield place.tensor, Place(place.tensor, place.source, parameter, (), (None,) * len(
                place.source
            ))
        return
    owners = np.searchsorted(specs.bounds, numbers, side="right") - 1
    owners[numbers < 0] = -1
    cells = []
    for box in _grid(_cuts(numbers, owners, specs), numbers.shape):
        corner = tuple(part.start for part in box)
        if numbers[corner] >= 0:
            cells.append(_place(parameter, numbers, specs, box, int(owners[corner])))
    for place in _merged(cells):
        yield place.tensor, place


def _indices(numbers: Array, specs: Specs, owner: int) -> tuple[Array, ...]:
    name = specs.names[owner]
    _, shape = specs.of[name]
    found = np.unravel_index(numbers - specs.starts[name], shape or (1,))
    return tuple(np.asarray(part) for part in found)


def _cuts(numbers: Array, owners: Array, specs: Specs) -> list[Array]:
    """Returns for each dimension where some line is cut: where neighbours are not neighbours."""
    shape = numbers.shape
    steps = []
    for axis in range(numbers.ndim):
        size = max(shape[axis] - 1, 0)
        cut = np.zeros(size, bool)
        low, high = (
            np.take(numbers, range(part, part + size), axis) for part in (0, 1)
        )
        one, other = (np.take(owners, range(part, part + size), axis) for part in (0, 1))
        others = tuple(at for at in range(numbers.ndim) if at != axis)
        cut |= (one != other).any(axis=others)
        # The dimension along which each line steps must be the same all along.
        for owner in np.unique(owners[owners >= 0]):
            mask = (one == owner) & (other == owner)
            if not mask.any():
                continue
            before = _indices(np.where(mask, low, specs.bounds[owner]), specs, int(owner))
            after = _indices(np.where(mask, high, specs.bounds[owner]), specs, int(owner))
            change = [b - a for a, b in zip(before, after)]
            moved = sum((delta != 0).astype(np.int64) for delta in change)
            is_one = sum((delta == 1).astype(np.int64) for delta in change)
            linked = (moved == 1) & (is_one == 1)
            which = sum((at + 1) * (delta == 1).astype(np.int64) for at, delta in enumerate(change))
            cut |= (mask & ~linked).any(axis=others)
            # Lines of one tensor that step along different dimensions are cut apart.
            top = np.where(mask & linked, which, 0).max(axis=others)
            bottom = np.where(mask & linked, which, 1 << 30).min(axis=others)
            cut |= (top > 0) & (top != bottom)
            cut[1:] |= (top[1:] > 0) & (top[:-1] > 0) & (top[1:] != top[:-1])
        steps.append(cut)
    return steps


def _grid(cuts: Sequence[Array], shape: Sequence[int]) -> Iterator[Box]:
    along = []
    for cut, size in zip(cuts, shape):
        bounds = [0, *(np.flatnonzero(cut) + 1).tolist(), size]
        along.append([slice(a, b) for a, b in zip(bounds, bounds[1:]) if a < b])
    yield from itertools.product(*along)


def _place(parameter: str, numbers: Array, specs: Specs, box: Box, owner: int) -> Place:
    """Returns the place of a box in which each dimension steps along one of the tensor."""
    name = specs.names[owner]
    shape = specs.of[name][1]
    corner = tuple(part.start for part in box)
    start = [int(at[0]) for at in _indices(numbers[corner].reshape(1), specs, owner)][: len(shape)]
    counts, axes = [1] * len(shape), [None] * len(shape)  # type: list[int], list[int | None]
    for axis, part in enumerate(box):
        if part.stop - part.start > 1:
            beside = tuple(at + (dim == axis) for dim, at in enumerate(corner))
            moved = [int(at[0]) for at in _indices(numbers[beside].reshape(1), specs, owner)]
            along = next(dim for dim, (a, b) in enumerate(zip(start, moved)) if a != b)
            counts[along], axes[along] = part.stop - part.start, axis
    source = tuple(Span(first, count) for first, count in zip(start, counts))
    target = tuple(Span(part.start, part.stop - part.start) for part in box)
    return Place(name, source, parameter, target, tuple(axes))


def _merged(places: list[Place]) -> list[Place]:
    """Joins places that follow one another at a constant distance, dimension by dimension."""
    if not places:
        return []
    for axis in reversed(range(len(places[0].target))):
        for is_beside in (True, False):
            rows: dict[Any, list[Place]] = defaultdict(list)
            for place in places:
                others = tuple(span for at, span in enumerate(place.target) if at != axis)
                kind = () if is_beside else (place.target[axis].count, place.axes)
                rows[place.tensor, others, kind].append(place)
            join = _join_beside if is_beside else _join
            places = [joined for row in rows.values() for joined in join(row, axis)]
    return sorted(places, key=lambda place: [span.start for span in place.target])


def _join_beside(row: list[Place], axis: int) -> Iterator[Place]:
    """Joins places of any size with nothing between them in the parameter and in the tensor."""
    row.sort(key=lambda place: place.target[axis].start)
    last = row[0]
    for place in row[1:]:
        joined = _beside(last, place, axis)
        if joined is None:
            yield last
        last = joined or place
    yield last


def _beside(one: Place, other: Place, axis: int) -> Place | None:
    differing = [dim for dim, (a, b) in enumerate(zip(one.source, other.source)) if a != b]
    if len(differing) != 1:
        return None
    (dim,) = differing
    axes = [at for at in range(len(one.axes)) if at != dim]
    if any(one.axes[at] != other.axes[at] or one.axes[at] == axis for at in axes):
        return None
    for place in (one, other):
        along, across = place.source[dim], place.target[axis]
        if place.axes[dim] not in (axis, None) or along.count != across.count:
            return None
        if (along.step, across.step) != (1, 1):
            return None
    ends = [(span.start + span.count) for span in (one.source[dim], one.target[axis])]
    if ends != [other.source[dim].start, other.target[axis].start]:
        return None
    return _joined(one, axis, (1, dim, 1), one.source[dim].count + other.source[dim].count)


def _join(row: list[Place], axis: int) -> Iterator[Place]:
    """Joins places that differ in dimension ``axis`` of the parameter and in one of the tensor."""
    row.sort(key=lambda place: place.target[axis].start)
    at = 0
    while at < len(row):
        first = row[at]
        end = at + 1
        step = None
        while end < len(row):
            found = _step(row[end - 1], row[end], axis)
            if found is None or (step is not None and found != step):
                break
            step, end = found, end + 1
        if step is None:
            yield first
        else:
            yield _joined(first, axis, step, end - at)
        at = end


def _step(one: Place, other: Place, axis: int) -> tuple[int, int, int] | None:
    """Returns how far the next place is, in the parameter and in which dimension of the tensor."""
    differing = [dim for dim, (a, b) in enumerate(zip(one.source, other.source)) if a != b]
    if len(differing) != 1:
        return None
    (dim,) = differing
    if any(a.count != b.count for a, b in zip(one.source, other.source)):
        return None
    far = other.target[axis].start - one.target[axis].start
    source = other.source[dim].start - one.source[dim].start
    if one.axes[dim] is not None or one.target[axis].count != 1:
        return None
    return far, dim, source


def _joined(first: Place, axis: int, step: tuple[int, int, int], count: int) -> Place:
    far, dim, distance = step
    source, target, axes = list(first.source), list(first.target), list(first.axes)
    source[dim] = Span(source[dim].start, count, distance)
    target[axis] = Span(target[axis].start, count, far)
    axes[dim] = axis
    return Place(first.tensor, tuple(source), first.parameter, tuple(target), tuple(axes))


def boxes_of(mask: Array) -> list[Box]:
    """Returns boxes that together are the elements of ``mask``."""
    if not mask.any():
        return []
    if mask.ndim == 0:
        return [()]
    cuts: list[Array] = []
    for axis in range(mask.ndim):
        others = tuple(at for at in range(mask.ndim) if at != axis)
        changes = np.diff(mask.astype(np.int8), axis=axis).astype(bool)
        cuts.append(np.asarray(changes.any(axis=others)))
    boxes = []
    for box in _grid(cuts, mask.shape):
        if mask[tuple(part.start for part in box)]:
            boxes.append(box)
    return boxes
