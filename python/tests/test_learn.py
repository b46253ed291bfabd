"""Layouts found by experiment: made-up loaders, whose places are known or replayed with numpy."""

from __future__ import annotations

import random

import numpy as np
import pytest

import syncline as sl

SHAPES = {"q": (8, 6), "k": (4, 6), "v": (4, 6), "o": (6, 8), "norm": (6,), "embed": (10, 6)}


def check(loader, shapes, **facts) -> sl.LearnedLayout:
    """Learns, and loads fresh values by what was learned: all parameters must be the loader's."""
    learned = sl.learn_layout(loader, shapes)
    rng = np.random.default_rng(7)
    fresh = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    expected = loader(fresh)
    got = {name: np.full_like(np.array(array), 77) for name, array in expected.items()}
    learned.load(fresh, got)
    for name, array in expected.items():
        assert np.array_equal(got[name], array), (name, learned.places)
    assert learned.is_complete
    for fact, value in facts.items():
        assert getattr(learned, fact) == value, fact
    return learned


def tp_loader(rank: int, size: int, heads: int = 2):
    def rows(tensor, parts=size, at=rank):
        return np.split(tensor, parts)[at]

    def loader(tensors):
        # As many key-value heads as there are, whatever the ranks.
        kv = min(size, heads)
        part = rank * kv // size
        fused = [rows(tensors["q"]), rows(tensors["k"], kv, part), rows(tensors["v"], kv, part)]
        columns = np.split(tensors["o"], size, axis=1)[rank]
        return {"qkv": np.concatenate(fused), "o": columns.copy(), "norm": tensors["norm"].copy()}

    return loader


@pytest.mark.parametrize("size", [1, 2, 4])
def test_fused_parameters_are_found_on_every_rank(size: int) -> None:
    shapes = {name: shape for name, shape in SHAPES.items() if name != "embed"}
    ranks = {
        rank: check(tp_loader(rank, size), shapes, opaque={}, unused=[]) for rank in range(size)
    }
    layout = sl.layout_of_ranks(ranks)
    assert layout.world == size and set(layout.names) == set(shapes)
    for rank in range(size):
        ((box, start),) = layout.pieces("q", rank)
        assert box == ((8 // size * rank, 8 // size * (rank + 1)), (0, 6)) and start == (0, 0)


def test_interleaved_padded_stacked_and_transposed_ones_are_found() -> None:
    def loader(tensors):
        gate_up = np.empty((8, 6), np.float32)
        gate_up[0::2], gate_up[1::2] = tensors["gate"], tensors["up"]
        experts = np.stack([tensors["e0"].T, tensors["e1"].T])
        embed = np.zeros((16, 6), np.float32)
        embed[:10] = tensors["embed"]
        reverse = tensors["gate"][::-1].copy()
        return {
            "gate_up": gate_up, "experts": experts, "embed": embed, "reverse": reverse,
            "head": embed.copy(), "flat": tensors["up"].reshape(-1).copy(),
            "halves": np.concatenate([tensors["up"][:, ::2], tensors["up"][:, 1::2]], axis=1),
            "scalar": np.array(tensors["one"]).reshape(()),
        }  # fmt: skip

    shapes = {
        "gate": (4, 6), "up": (4, 6), "e0": (3, 5), "e1": (3, 5), "embed": (10, 6), "dead": (7,),
        "one": (1,),
    }  # fmt: skip
    learned = check(loader, shapes, opaque={}, unused=["dead"])
    (gate, reversed_) = sorted(learned.places["gate"], key=lambda place: place.parameter)
    assert repr(gate) == "Place(gate_up[0:8:2, 0:6] = gate[0:4, 0:6])"
    assert reversed_.parameter == "reverse" and reversed_.elements == 24
    assert [place.axes for place in learned.places["e1"]] == [(2, 1)]
    assert learned.constants["embed"] == [((slice(10, 16), slice(0, 6)), 0.0)]
    layout = learned.to_layout()
    assert set(layout.names) >= {"gate", "gate#1", "e0", "embed", "embed#1"}
    assert layout.spec("e0") == ("f32", (3, 5)) and layout.local_shape("e0", 0) == (3, 5)


def test_a_shift_by_one_row_is_always_found(rng: random.Random) -> None:
    rows, columns = rng.randint(2, 40), rng.randint(1, 9)
    start = rng.randrange(rows)

    def right(tensors):
        return {"w": np.concatenate([tensors["a"], tensors["b"]])}

    def shifted(tensors):
        fused = right(tensors)["w"]
        fused[start : start + rows] = np.roll(fused[start : start + rows], 1, axis=0)
        return {"w": fused}

    shapes = {"a": (rows, columns), "b": (rows, columns)}
    one, other = check(right, shapes), check(shifted, shapes)
    assert one.places != other.places
    assert [place.elements for place in one.places["a"]] == [rows * columns]


def test_what_is_no_placement_is_named() -> None:
    def loader(tensors):
        both = tensors["k"] + tensors["v"]
        return {
            "q": tensors["q"] + 1, "sum": both, "o": tensors["o"].copy(),
            "norm": -np.exp(tensors["norm"] / 100), "embed": tensors["embed"].copy(),
        }  # fmt: skip

    learned = sl.learn_layout(loader, SHAPES)
    assert set(learned.opaque) == {"q", "k", "v", "norm"} and "`sum`" in learned.opaque["v"]
    assert learned.places["o"] and learned.places["embed"] and not learned.unexplained
    assert not learned.is_complete
    with pytest.raises(sl.LayoutError, match="not known how to load"):
        learned.load({}, {})


def test_memory_that_is_not_loaded_is_told_from_padding() -> None:
    held = {"w": np.full((4, 6), np.nan, np.float32), "bias": np.zeros(3, np.float32)}
    rng = np.random.default_rng(3)

    def loader(tensors):
        held["w"][1:3] = tensors["a"]
        # As memory that was never written: different each time.
        held["bias"][:] = rng.normal(size=3)
        return held

    learned = sl.learn_layout(loader, {"a": (2, 6)})
    assert learned.unwritten == {
        "w": [(slice(0, 1), slice(0, 6)), (slice(3, 4), slice(0, 6))],
        "bias": [(slice(0, 3),)],
    }
    assert learned.is_complete and not learned.constants


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8_e4m3", "f8_e5m2", "i8", "u8", "f64"])
def test_every_element_type_is_exact(dtype: str) -> None:
    def loader(tensors):
        return {"w": np.concatenate([tensors["a"][3:], tensors["b"]])}

    learned = sl.learn_layout(loader, {"a": (dtype, (40, 30)), "b": (dtype, (5, 30))})
    assert learned.parameters == {"w": (dtype, (42, 30))} and learned.is_complete
    assert repr(learned.places["a"]) == "[Place(w[0:37, 0:30] = a[3:40, 0:30])]"


def test_loaders_of_any_random_boxes_are_replayed(rng: random.Random) -> None:
    shapes = {f"t{at}": (rng.randint(1, 12), rng.randint(1, 12)) for at in range(4)}
    cuts = [(rng.randrange(4), rng.random(), rng.random(), rng.random() < 0.3) for _ in range(6)]

    def loader(tensors):
        parameters = {}
        for number, (which, low, high, turn) in enumerate(cuts):
            tensor = tensors[f"t{which}"]
            first = int(low * tensor.shape[0])
            last = first + 1 + int(high * (tensor.shape[0] - first - 1))
            part = tensor[first:last]
            parameters[f"p{number}"] = part.T.copy() if turn else part.copy()
        whole = np.zeros((13, 25), np.float32)
        for number, name in enumerate(("t0", "t1")):
            rows, columns = tensors[name].shape
            whole[number : number + rows, 13 * number : 13 * number + columns] = tensors[name]
        return {**parameters, "whole": whole}

    check(loader, shapes, opaque={})


def test_misuse_is_refused() -> None:
    with pytest.raises(sl.LayoutError, match="tensor `a`"):
        sl.learn_layout(dict, {"a": ("x", "y", "z")})
    with pytest.raises(sl.SynclineError, match="return its parameters"):
        sl.learn_layout(lambda tensors: None, {"a": (2,)})
    with pytest.raises(ZeroDivisionError):
        sl.learn_layout(lambda tensors: 1 / 0, {"a": (2,)})
