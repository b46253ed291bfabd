"""Layouts and plans, against numpy arrays of positions that are cut and moved by hand."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

import syncline as sl


def split(size: int, parts: int) -> list[int]:
    """Uneven splits give the first ranks one more."""
    return [size // parts + (at < size % parts) for at in range(parts)]


def random_layout(rng: random.Random, shapes: dict[str, tuple[int, ...]]) -> tuple[sl.Layout, dict]:
    """Returns a layout by tp, and by rank and name the positions that it must hold."""
    tp = rng.choice([1, 2, 3, 4])
    rules, held = [], {rank: {} for rank in range(tp)}
    for name, shape in shapes.items():
        positions = np.arange(np.prod(shape)).reshape(shape)
        dim = rng.choice([None, *range(len(shape))])
        if dim is None:
            for rank in range(tp):
                held[rank][name] = positions
            continue
        rules.append({"match": name, "shard": [{"dim": dim, "axis": "tp"}]})
        ends = np.cumsum(split(shape[dim], tp))[:-1]
        for rank, part in enumerate(np.split(positions, ends, axis=dim)):
            held[rank][name] = part
    mesh = {"mesh": {"axes": [["tp", tp]]}, "tensor": rules}
    specs = {name: ("f32", shape) for name, shape in shapes.items()}
    return sl.Layout.from_mesh(mesh, specs), held


def boxed(array: np.ndarray, box: list[list[int]]) -> np.ndarray:
    return array[tuple(slice(*span) for span in box)]


def test_layouts_hold_what_splits_give(rng: random.Random) -> None:
    shapes = {"a": (7, 5), "b": (6,), "c": (2, 3, 4)}
    layout, held = random_layout(rng, shapes)
    assert layout.names == list(shapes) and len(layout) == 3 and "a" in layout
    assert layout.world == len(held)
    for rank, tensors in held.items():
        for name, expected in tensors.items():
            assert layout.spec(name) == ("f32", shapes[name])
            positions = np.arange(np.prod(shapes[name])).reshape(shapes[name])
            local = np.full(layout.local_shape(name, rank) or (0,), -1)
            for box, start in layout.pieces(name, rank):
                into = tuple(slice(s, s + b - a) for s, (a, b) in zip(start, box))
                local[into] = boxed(positions, box)
            if expected.size:
                assert np.array_equal(local, expected), (name, rank)
            else:
                assert local.size == 0


def test_plans_move_every_element(rng: random.Random) -> None:
    shapes = {"a": (7, 5), "b": (6,), "c": (2, 3, 4)}
    source, before = random_layout(rng, shapes)
    target, after = random_layout(rng, shapes)
    plan = sl.plan(source, target)
    found = {rank: {n: np.full(a.shape, -1) for n, a in t.items()} for rank, t in after.items()}
    moved = 0
    for op in plan.ops:
        values = boxed(before[op["src"]][op["tensor"]], op["src_box"])
        boxed(found[op["dst"]][op["tensor"]], op["dst_box"])[...] = values
        moved += op["bytes"] if op["src"] != op["dst"] else 0
    for rank, tensors in after.items():
        for name, expected in tensors.items():
            assert np.array_equal(found[rank][name], expected)
    assert plan.bytes_moved == moved
    assert plan.bytes_total == sum(4 * a.size for t in after.values() for a in t.values())
    assert plan.rounds >= plan.rounds_lower_bound
    assert json.loads(plan.to_json())["ops"] == plan.ops


def test_explanations_name_both_ends(rng: random.Random) -> None:
    shapes = {"a": (7, 5)}
    source, before = random_layout(rng, shapes)
    target, after = random_layout(rng, shapes)
    plan = sl.plan(source, target)
    index = (rng.randrange(7), rng.randrange(5))
    said = plan.explain("a", index)
    position = index[0] * 5 + index[1]
    holders = {rank for rank, held in before.items() if position in held["a"]}
    assert {rank for rank, _ in said.sources} == holders
    for rank, place in said.sources:
        assert before[rank]["a"][place] == position
    assert {move.dst for move in said.moves} == {
        rank for rank, held in after.items() if position in held["a"]
    }
    for move in said.moves:
        assert after[move.dst]["a"][move.dst_index] == position
        assert before[move.src]["a"][move.src_index] == position
    assert f"rank {said.moves[0].dst}" in str(said)


def test_the_explicit_form_is_read_as_written(tmp_path) -> None:
    layout = sl.Layout.from_mesh("[mesh]\naxes = [['tp', 2]]\n", {"w": ("bfloat16", (4, 4))})
    assert sl.Layout.from_json(layout.to_json()) == layout
    path = tmp_path / "layout.json"
    path.write_text(layout.to_json())
    assert sl.Layout.from_json(path) == layout == sl.Layout.from_json(str(path))
    assert sl.Layout.from_json(json.loads(layout.to_json())) == layout
    assert sl.Layout.from_mesh("[mesh]\naxes = [['tp', 1]]\n", {"w": ("bf16", (4, 4))}) != layout


def test_meshes_take_tensors_and_paths(tmp_path) -> None:
    path = tmp_path / "mesh.toml"
    rule = "[[tensor]]\nmatch = 'w'\nshard = [{dim = 0, axis = 'tp'}]\n"
    path.write_text("[mesh]\naxes = [['tp', 2]]\n" + rule)
    layout = sl.Layout.from_mesh(path, {"w": np.zeros((4, 2), np.float16)})
    assert layout.spec("w") == ("f16", (4, 2))
    assert layout.pieces("w", 1) == [(((2, 4), (0, 2)), (0, 0))]


@pytest.mark.parametrize(
    "bad",
    ["{", "[mesh]\naxes = [['tp', 0]]\n", "/no/such/file.toml", "[mesh]\nshapes = 1\n"],
)
def test_bad_layouts_are_refused(bad: str) -> None:
    with pytest.raises(sl.LayoutError):
        sl.Layout.from_mesh(bad, {"w": ("f32", (4,))})


def test_plans_that_cannot_be_made_are_refused() -> None:
    mesh = "[mesh]\naxes = [['tp', 1]]\n"
    one = sl.Layout.from_mesh(mesh, {"w": ("f32", (4, 6))})
    for other in [{"w": ("f32", (6, 4))}, {"v": ("f32", (4, 6))}, {"w": ("bf16", (4, 6))}, {}]:
        with pytest.raises(sl.LayoutError):
            sl.plan(one, sl.Layout.from_mesh(mesh, other))
    half = sl.Layout.from_mesh(mesh, {"w": ("bf16", (4, 6))})
    for convert in [True, {"f32": "bf16"}, [("float32", "torch.bfloat16")], [(np.float32, "bf16")]]:
        assert sl.plan(one, half, convert=convert).bytes_total == 48
    with pytest.raises(sl.LayoutError):
        sl.plan(one, half, convert={"bf16": "f32"})
    with pytest.raises(sl.SynclineError):
        sl.plan(one, half, convert={"f33": "bf16"})
    with pytest.raises(sl.LayoutError):
        sl.plan(one, half, convert=True).explain("w", (4, 0))
    with pytest.raises(sl.LayoutError):
        one.spec("x")


def test_notebooks_show_what_each_rank_sends() -> None:
    rule = {"match": "w", "shard": [{"dim": 0, "axis": "tp"}]}
    tensors = {"w": ("f32", (4, 2))}
    rows = sl.Layout.from_mesh({"mesh": {"axes": [["tp", 2]]}, "tensor": [rule]}, tensors)
    one = sl.Layout.from_mesh({"mesh": {"axes": [["tp", 1]]}, "tensor": [rule]}, tensors)
    page = sl.plan(rows, one)._repr_html_()
    assert "16 between ranks" in page and page.count("<tr>") == 3
    assert page.count(">16</td>") == 1 and "from 1" in page
