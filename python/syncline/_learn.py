"""Layouts found by experiment: where an engine's own loader puts each element of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _native
from ._boxes import Place, boxes_of, fit
from ._dtypes import numpy_dtype, torch_dtype
from .errors import LayoutError, SynclineError

Array = np.ndarray[Any, Any]
#: Loads tensors into an engine and returns its parameters by name.
Loader = Callable[[Mapping[str, Any]], Mapping[str, Any]]

#: Digits that an element type has exactly, where it has fewer than 256.
_DIGITS = {"bool": 2, "i8": 128, "f8_e4m3": 16, "f8_e5m2": 8}
_DIGITS_MAX = 256
#: How unlikely it is that an element passes verification at a wrong place: one in so many.
_CERTAINTY = 1 << 24


class Encoded(Mapping[str, Array]):
    """Tensors whose values say which element they are: made when they are asked for."""

    def __init__(
        self, specs: Specs, values: Callable[[Array, str], Array], as_torch: bool
    ) -> None:
        self._specs = specs
        self._values = values
        self._as_torch = as_torch

    def __getitem__(self, name: str) -> Any:
        start, (dtype, shape) = self._specs.starts[name], self._specs.of[name]
        numbers = np.arange(start, start + math.prod(shape), dtype=np.int64)
        values = self._values(numbers, name).astype(np.float32).reshape(shape)
        if not self._as_torch:
            return values.astype(numpy_dtype(dtype))
        import torch

        return torch.from_numpy(values).to(torch_dtype(dtype))

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs.of)

    def __len__(self) -> int:
        return len(self._specs.of)


class Specs:
    """Element types and shapes of the tensors of a checkpoint, and numbers of their elements."""

    def __init__(self, names_and_shapes: Mapping[str, Any]) -> None:
        self.of = {name: _spec(name, given) for name, given in names_and_shapes.items()}
        self.names = list(self.of)
        sizes = [math.prod(shape) for _, shape in self.of.values()]
        self.bounds = np.cumsum([0, *sizes], dtype=np.int64)
        self.starts = dict(zip(self.names, self.bounds.tolist()))
        self.total = int(self.bounds[-1])


def _spec(name: str, given: Any) -> tuple[str, tuple[int, ...]]:
    if hasattr(given, "dtype") and hasattr(given, "shape"):
        return _native.dtype_name(given.dtype), tuple(given.shape)
    parts = tuple(given)
    if len(parts) == 2 and not isinstance(parts[0], (int, np.integer)):
        return _native.dtype_name(parts[0]), tuple(int(size) for size in parts[1])
    if not all(isinstance(size, (int, np.integer)) for size in parts):
        raise LayoutError(f"tensor `{name}`: expected a shape, (dtype, shape) or a tensor")
    return "f32", tuple(int(size) for size in parts)


def _array(tensor: Any) -> Array:
    """Returns a copy of a parameter as numbers that numpy compares."""
    if hasattr(tensor, "untyped_storage"):
        import torch

        tensor = tensor.detach()
        exact = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        return np.array(tensor.to(exact).cpu().numpy(), dtype=np.float64)
    return np.array(tensor).astype(np.float64)


def _dtype(tensor: Any) -> str:
    return _native.dtype_name(tensor.dtype)


def _hash(numbers: Array, seed: int) -> Array:
    """Returns a random number below 2**24 for each number."""
    with np.errstate(over="ignore"):
        mixed = numbers.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15) % (1 << 64))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed >> np.uint64(40)).astype(np.int64)


class LearnedLayout:
    """Where a loader puts the elements of each tensor of a checkpoint.

    ``places`` has for each tensor the boxes of it that are in parameters; ``opaque`` the tensors of
    which something is in parameters in another form, with the reason, and ``affects`` in which
    parameters; ``unused`` those of which nothing is. ``constants`` are boxes of parameters that
    have the same value whatever is loaded, such as padding; ``unwritten`` boxes that loading leaves
    alone.
    """

    def __init__(
        self, specs: Mapping[str, Any], parameters: Mapping[str, tuple[str, tuple[int, ...]]]
    ) -> None:
        self.tensors: dict[str, tuple[str, tuple[int, ...]]] = dict(specs)
        self.parameters = dict(parameters)
        self.places: dict[str, list[Place]] = {name: [] for name in specs}
        self.opaque: dict[str, str] = {}
        self.affects: dict[str, list[str]] = {}
        self.unused: list[str] = []
        self.constants: dict[str, list[tuple[tuple[slice, ...], float]]] = {}
        self.unwritten: dict[str, list[tuple[slice, ...]]] = {}
        self.unexplained: dict[str, int] = {}

    @property
    def is_complete(self) -> bool:
        """True if every element of every parameter is a placed one, a constant or unwritten."""
        return not self.opaque and not self.unexplained

    def elements(self, name: str) -> int:
        """Returns how many places in parameters elements of a tensor have."""
        return sum(place.elements for place in self.places[name])

    def view(self, place: Place, parameters: Mapping[str, Any]) -> Any:
        """Returns the view of a parameter that holds a place, with the tensor's dimensions."""
        return place.view(parameters[place.parameter])

    def load(self, tensors: Mapping[str, Array], parameters: Mapping[str, Any]) -> None:
        """Writes tensors into parameters as the loader would, without the loader.

        Raises a ``LayoutError`` where it is not known how.
        """
        if self.opaque or self.unexplained:
            raise LayoutError(f"it is not known how to load {[*self.opaque, *self.unexplained]}")
        for name, boxes in self.constants.items():
            for box, value in boxes:
                parameters[name][box] = value
        for name, places in self.places.items():
            for place in places:
                place.view(parameters[place.parameter])[...] = tensors[name][place.source_slices()]

    def to_layout(self, rank: int = 0) -> _native.Layout:
        """Returns the layout of one rank that holds its places; see ``layout_of_ranks``."""
        return layout_of_ranks({rank: self})

    def __repr__(self) -> str:
        placed = sum(bool(places) for places in self.places.values())
        parts = [f"{placed} of {len(self.places)} tensors placed"]
        parts += [f"opaque: {', '.join(self.opaque)}"] if self.opaque else []
        parts += [f"unused: {', '.join(self.unused)}"] if self.unused else []
        parts += [f"unexplained: {', '.join(self.unexplained)}"] if self.unexplained else []
        return f"LearnedLayout({'; '.join(parts)})"


def entry(name: str, number: int) -> str:
    """Returns the name that place ``number`` of a tensor has in a layout."""
    return name if number == 0 else f"{name}#{number}"


def layout_of_ranks(ranks: Mapping[int, LearnedLayout]) -> _native.Layout:
    """Returns the layout of ranks that hold what each of them has learned.

    A rank that holds a tensor in several places holds the first by the tensor's name, and the
    others by names with ``#1``, ``#2`` and so on.
    """
    tensors: dict[str, tuple[str, str, list[int], list[Any]]] = {}
    for rank, learned in sorted(ranks.items()):
        for name, places in learned.places.items():
            shape = learned.tensors[name][1]
            for number, place in enumerate(places):
                dtype = learned.parameters[place.parameter][0]
                called = entry(name, number)
                made = tensors.setdefault(called, (called, dtype, list(shape), []))
                if made[1] != dtype:
                    text = f"tensor `{called}`: {made[1]} on one rank and {dtype} on another"
                    raise LayoutError(text)
                made[3].append((rank, place.counts, place.pieces()))
    return _native.Layout._from_shards(list(tensors.values()))


def learn_layout(
    loader: Loader,
    names_and_shapes: Mapping[str, Any],
    seed: int = 0,
    as_torch: bool = False,
) -> LearnedLayout:
    """Finds where a loader puts each element of each tensor of a checkpoint.

    ``loader`` is called several times with tensors by name and returns the parameters by name that
    it has loaded them into. The values say which element they are, in digits that every element
    type has exactly; what that tells is verified with random values, element by element.
    ``names_and_shapes`` has a shape, ``(dtype, shape)`` or a tensor for each name. With
    ``as_torch`` the loader gets tensors of torch instead of numpy arrays.

    >>> def loader(tensors):
    ...     return {"qk": np.concatenate([tensors["q"], tensors["k"]])}
    >>> learned = learn_layout(loader, {"q": (4, 2), "k": (2, 2)})
    >>> learned.places["k"]
    [Place(qk[4:6, 0:2] = k[0:2, 0:2])]
    """
    specs = Specs(names_and_shapes)
    return _Experiment(loader, specs, seed, as_torch).run()


class _Experiment:
    def __init__(self, loader: Loader, specs: Specs, seed: int, as_torch: bool) -> None:
        self.loader = loader
        self.specs = specs
        self.seed = seed
        self.as_torch = as_torch
        self.base = min(
            [_DIGITS_MAX, *(_DIGITS.get(dtype, _DIGITS_MAX) for dtype, _ in specs.of.values())]
        )
        self.parameters: dict[str, tuple[str, tuple[int, ...]]] = {}

    def load(self, values: Callable[[Array, str], Array]) -> dict[str, Array]:
        loaded = self.loader(Encoded(self.specs, values, self.as_torch))
        if not isinstance(loaded, Mapping):
            raise SynclineError("learn_layout: the loader must return its parameters by name")
        found = {name: _array(tensor) for name, tensor in loaded.items()}
        specs = {name: (_dtype(loaded[name]), array.shape) for name, array in found.items()}
        if self.parameters and specs != self.parameters:
            raise SynclineError("learn_layout: the loader returned other parameters than before")
        self.parameters = specs
        return found

    def random(self, number: int) -> Callable[[Array, str], Array]:
        """Returns the values of a pass with random digits."""
        return lambda numbers, _: _hash(numbers, self.seed + number) % self.base

    def run(self) -> LearnedLayout:
        first = self.load(self.random(1))
        base = min([self.base, *(_DIGITS.get(dtype, 256) for dtype, _ in self.parameters.values())])
        if base != self.base:
            # The parameters have fewer exact digits than the checkpoint.
            self.base = base
            first = self.load(self.random(1))
        numbers = self.decode()
        again = self.load(self.random(1))
        constant = {name: np.ones(array.shape, bool) for name, array in first.items()}
        for number in range(1, 1 + max(2, math.ceil(math.log(_CERTAINTY, self.base)))):
            expected = self.random(number)
            loaded = first if number == 1 else self.load(expected)
            for name, found in numbers.items():
                wrong = loaded[name] != expected(found, "")
                found[wrong] = -1
                constant[name] &= _same(loaded[name], first[name])
        learned = LearnedLayout(self.specs.of, self.parameters)
        open_: dict[str, Array] = {}
        for name, found in numbers.items():
            for at, place in fit(name, found, self.specs):
                learned.places[at].append(place)
            rest = found < 0
            stable = _same(first[name], again[name])
            self.note_constants(learned, name, rest & constant[name], first[name])
            # What differs between two equal loads was not loaded.
            noise = rest & ~stable
            learned.unwritten.setdefault(name, []).extend(boxes_of(noise))
            changing = rest & ~constant[name] & stable
            if changing.any():
                open_[name] = changing
                learned.unexplained[name] = int(changing.sum())
        learned.unwritten = {name: boxes for name, boxes in learned.unwritten.items() if boxes}
        self.attribute(learned, open_, first)
        for name, (_, sizes) in self.specs.of.items():
            if not learned.places[name] and name not in learned.opaque and 0 not in sizes:
                learned.unused.append(name)
        return learned

    def digits(self, weight: int) -> Callable[[Array, str], Array]:
        """Returns the values of a pass with one digit of each element's number."""
        return lambda numbers, _: numbers // weight % self.base

    def decode(self) -> dict[str, Array]:
        """Returns the number of the element that each element of the parameters is a copy of."""
        digits = max(1, math.ceil(math.log(max(self.specs.total, 2), self.base)))
        while self.base**digits < self.specs.total:
            digits += 1
        numbers: dict[str, Array] = {}
        for digit in range(digits):
            weight = self.base**digit
            loaded = self.load(self.digits(weight))
            for name, array in loaded.items():
                known = numbers.setdefault(name, np.zeros(array.shape, np.int64))
                with np.errstate(invalid="ignore"):
                    is_digit = (array >= 0) & (array < self.base) & (array == np.floor(array))
                    value = np.where(is_digit, array, 0).astype(np.int64)
                known += value * weight
                known[~is_digit] = -(1 << 62)
        for found in numbers.values():
            found[(found < 0) | (found >= self.specs.total)] = -1
        return numbers

    def note_constants(
        self, learned: LearnedLayout, name: str, constant: Array, values: Array
    ) -> None:
        for value in np.unique(values[constant]):
            same = constant & _same(values, np.full_like(values, value))
            boxes = boxes_of(same)
            if np.isnan(value):
                # The mark of memory that nobody has written.
                learned.unwritten.setdefault(name, []).extend(boxes)
            else:
                found = [(box, float(value)) for box in boxes]
                learned.constants.setdefault(name, []).extend(found)

    def attribute(
        self, learned: LearnedLayout, open_: dict[str, Array], first: dict[str, Array]
    ) -> None:
        """Finds the tensors that elements depend on which are not copies of any."""
        if not open_:
            return
        names = self.specs.names
        hits = {name: np.zeros((len(names), int(mask.sum())), bool) for name, mask in open_.items()}
        bits = max(1, (len(names) - 1).bit_length())
        for hit in hits.values():
            hit[:] = True
        for bit, side in ((bit, side) for bit in range(bits) for side in (0, 1)):
            group = {name for at, name in enumerate(names) if at >> bit & 1 == side}
            changed = self.perturbed(group, first, open_)
            members = np.array([name in group for name in names])
            for name, mask in changed.items():
                # An element that is untouched by a group depends on none of its members.
                hits[name][members] &= mask
        depends = np.zeros((len(names),), bool)
        for hit in hits.values():
            depends |= hit.any(axis=1)
        for at in np.flatnonzero(depends):
            changed = self.perturbed({names[at]}, first, open_)
            affected = [name for name, mask in changed.items() if mask.any()]
            if affected:
                learned.affects[names[at]] = affected
                where = ", ".join(f"`{name}`" for name in affected)
                learned.opaque[names[at]] = f"a transformation of its values is in {where}"
                for name in affected:
                    learned.unexplained.pop(name, None)

    def perturbed(
        self, group: set[str], first: dict[str, Array], open_: dict[str, Array]
    ) -> dict[str, Array]:
        """Returns which open elements change if the tensors of ``group`` have other values."""
        one, other = self.random(1), self.random(99)
        loaded = self.load(lambda at, name: (other if name in group else one)(at, name))
        return {name: ~_same(loaded[name], first[name])[mask] for name, mask in open_.items()}


def _same(one: Array, other: Array) -> Array:
    result: Array = (one == other) | (np.isnan(one) & np.isnan(other))
    return result


def describe(learned: Iterable[tuple[int, LearnedLayout]]) -> Sequence[str]:
    """Returns lines that say what was found, for logs."""
    return [f"rank {rank}: {one!r}" for rank, one in learned]
