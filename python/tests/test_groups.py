"""Groups: refits and single copies between processes, in place, against numpy."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest
from conftest import run_ranks

import syncline as sl

SHAPES = {"a": (12, 10), "b": (8,), "c": (3, 4, 5)}


def layout(axes: list, rules: dict[str, int], dtype: str = "f32", offset: int = 0) -> sl.Layout:
    tensors = [
        {"match": name, "shard": [{"dim": dim, "axis": "tp"}]} for name, dim in rules.items()
    ]
    mesh = {"mesh": {"axes": axes, "offset": offset}, "tensor": tensors}
    return sl.Layout.from_mesh(mesh, {name: (dtype, shape) for name, shape in SHAPES.items()})


def values(name: str, dtype=np.float32) -> np.ndarray:
    size = int(np.prod(SHAPES[name]))
    return (np.arange(size) % 200 + len(name)).astype(dtype).reshape(SHAPES[name])


def held(layout: sl.Layout, rank: int, dtype=np.float32) -> dict[str, np.ndarray]:
    """What a rank holds of the values, by the layout's own pieces."""
    found = {}
    for name in layout.names:
        shape = layout.local_shape(name, rank)
        if shape is None:
            continue
        local = np.zeros(shape, dtype)
        for box, start in layout.pieces(name, rank):
            into = tuple(slice(s, s + b - a) for s, (a, b) in zip(start, box))
            local[into] = values(name, dtype)[tuple(slice(*span) for span in box)]
        found[name] = local
    return found


def turned(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """A view of the same shape, with some dimensions from back to front."""
    return array[tuple(slice(None, None, rng.choice([1, -1])) for _ in array.shape)]


def in_other_order(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """The same values in memory with gaps, in any order of dimensions and directions."""
    order = rng.sample(range(array.ndim), array.ndim)
    gaps = [rng.choice([0, 0, 1, 3]) for _ in order]
    frame = np.zeros([array.shape[dim] + gap for dim, gap in zip(order, gaps)], array.dtype)
    part = frame[tuple(slice(gap, None) for gap in gaps)].transpose(np.argsort(order))
    part = turned(rng, part)
    part[...] = array
    return part


def refit_body(group: sl.Group, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [1, 2, 3]
    source = layout([["tp", rng.choice(sizes)]], {"a": rng.randrange(2), "c": rng.randrange(3)})
    parts = rng.choice(sizes)
    offset = rng.randint(0, 3 - parts)
    target = layout([["tp", parts]], {"a": rng.randrange(2), "b": 0}, offset=offset)
    checksums = rng.random() < 0.5
    refit = group.prepare(source, target, checksums=checksums)
    strided = rng.random() < 0.7
    sources = held(source, group.rank)
    if strided:
        sources = {name: in_other_order(rng, array) for name, array in sources.items()}
    wanted = held(target, group.rank)
    for version in range(3):
        frames = {name: np.full((*a.shape, 2), -1, a.dtype) for name, a in wanted.items()}
        targets = {
            name: turned(rng, frame[..., 0]) if strided else np.ascontiguousarray(frame[..., 0])
            for name, frame in frames.items()
        }
        frames = {name: frame[..., 1] for name, frame in frames.items()}
        addresses = {name: array.ctypes.data for name, array in targets.items()}
        stats = refit.run(sources, targets)
        assert stats.version == version + 1 and stats.changed_fraction == 1.0
        assert stats.seconds > 0
        for name, expected in wanted.items():
            assert np.array_equal(targets[name], expected), name
            assert targets[name].ctypes.data == addresses[name]
            # What lies between the elements of a strided target is left alone.
            assert not strided or (frames[name] == -1).all()


@pytest.mark.parametrize("seed", range(8))
def test_refits_move_every_element(seed: int) -> None:
    run_ranks(3, refit_body, seed)


def stats_body(group: sl.Group) -> tuple[int, int, int]:
    source, target = layout([["tp", 2]], {"a": 0}), layout([["tp", 2]], {"a": 1})
    refit = group.prepare(source, target)
    calls: list[tuple[int, int]] = []
    targets = {name: np.zeros_like(a) for name, a in held(target, group.rank).items()}
    stats = refit.run(
        held(source, group.rank), targets, version=7, progress=lambda *a: calls.append(a)
    )
    assert stats.version == 7
    assert calls and calls[-1][0] == calls[-1][1]
    plan = sl.plan(source, target)
    assert plan.bytes_moved == refit.bytes_moved
    return stats.bytes_sent, stats.bytes_received, stats.bytes_kept


def test_statistics_are_those_of_the_plan() -> None:
    plan = sl.plan(layout([["tp", 2]], {"a": 0}), layout([["tp", 2]], {"a": 1}))
    both = run_ranks(2, stats_body)
    assert sum(sent for sent, _, _ in both) == plan.bytes_moved
    assert sum(received for _, received, _ in both) == plan.bytes_moved
    assert sum(kept for _, _, kept in both) == plan.bytes_total - plan.bytes_moved


def delta_body(group: sl.Group) -> list[tuple[float, int]]:
    shape = (64, 4096)
    rules = [{"match": "w", "shard": [{"dim": 0, "axis": "tp"}]}]
    mesh = {"mesh": {"axes": [["tp", 2]]}, "tensor": rules}
    source = sl.Layout.from_mesh(mesh, {"w": ("f32", shape)})
    rules[0]["shard"][0]["dim"] = 1
    target = sl.Layout.from_mesh(mesh, {"w": ("f32", shape)})
    refit = group.prepare(source, target, delta=True)
    full = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    rows = slice(32 * group.rank, 32 * group.rank + 32)
    columns = slice(2048 * group.rank, 2048 * group.rank + 2048)
    got = np.zeros((64, 2048), np.float32)
    said = []
    for run in range(5):
        if run:
            # One value in 4096, in every run another.
            full.reshape(-1)[run::4096] += 1
        if run == 3:
            # What the engine did to its own memory is not seen, and must not matter.
            got[:] = full[:, columns]
        stats = refit.run({"w": np.ascontiguousarray(full[rows])}, {"w": got})
        assert np.array_equal(got, full[:, columns]), run
        said.append((stats.changed_fraction, stats.version))
    return said


def test_a_delta_refit_sends_what_has_changed() -> None:
    for said in run_ranks(2, delta_body):
        assert [version for _, version in said] == [1, 2, 3, 4, 5]
        assert said[0][0] == 1.0
        assert all(0 < fraction < 0.02 for fraction, _ in said[1:]), said


def convert_body(group: sl.Group) -> None:
    source = layout([["tp", 2]], {"a": 0})
    target = layout([["tp", 1]], {}, "bf16", offset=1)
    refit = group.prepare(source, target, convert={"f32": "bf16"})
    assert set(refit.targets) == (set(SHAPES) if group.rank == 1 else set())
    targets = {
        name: np.zeros(shape, ml_dtypes.bfloat16) for name, (_, shape) in refit.targets.items()
    }
    refit.run(held(source, group.rank), targets)
    for name, got in targets.items():
        assert np.array_equal(got, values(name).astype(ml_dtypes.bfloat16))
    # Without ml_dtypes, plain bits stand for types that numpy lacks.
    bits = {name: np.zeros(a.shape, np.uint16) for name, a in targets.items()}
    refit.run(held(source, group.rank), bits)
    assert all(np.array_equal(bits[n].view(ml_dtypes.bfloat16), targets[n]) for n in targets)


def test_element_types_change_where_that_is_declared() -> None:
    run_ranks(2, convert_body)


def misuse_body(group: sl.Group) -> None:
    same = layout([["tp", 1]], {})
    refit = group.prepare(same, same)
    good = {name: values(name) for name in SHAPES}
    fresh = lambda: {name: np.zeros_like(a) for name, a in good.items()}  # noqa: E731

    def refused(match: str, sources=None, targets=None) -> None:
        with pytest.raises(sl.SynclineError, match=match):
            refit.run(sources or good, targets or fresh())

    frozen = fresh()
    frozen["a"].flags.writeable = False
    refused("read-only", targets=frozen)
    shared = np.zeros(200, np.float32)
    overlapping = {"b": shared[:8], "a": shared[4:124].reshape(12, 10)}
    refused("share memory", targets={**fresh(), **overlapping})
    refused("share memory", targets={**fresh(), "b": good["b"]})
    refused("is f32", targets={**fresh(), "b": np.zeros(8, np.int32)})
    refused("holds", targets={**fresh(), "a": np.zeros((10, 12), np.float32)})
    refused("no such tensor", targets={**fresh(), "d": np.zeros(8, np.float32)})
    refused("not bound", targets={name: a for name, a in fresh().items() if name != "a"})
    refused("not a tensor", sources={**good, "b": [0.0] * 8})
    refused("not a tensor", sources={**good, "b": None})
    stuck = np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (8,), (0,))
    refused("share memory", targets={**fresh(), "b": stuck})
    refused("big-endian", sources={**good, "b": np.zeros(8, ">f4")})
    with pytest.raises(sl.SynclineError, match="dict"):
        refit.run([1], [2])
    # Interleaved parts of one array share no element.
    both = np.zeros((2, 8), np.float32).T
    refit.run(good, {**fresh(), "b": both[:, 0]})
    assert np.array_equal(both[:, 0], good["b"]) and not both[:, 1].any()
    # The group goes on after every refusal.
    targets = fresh()
    refit.run(good, targets)
    assert all(np.array_equal(targets[name], good[name]) for name in good)


def test_misuse_is_refused_and_the_group_goes_on() -> None:
    run_ranks(1, misuse_body)


def copies_body(group: sl.Group) -> None:
    copies = group.copy_service()
    peers = range(group.size)
    for with_ids in [True, False]:
        sends = {peer: np.full((3, 4), 10 * group.rank + peer, np.int16) for peer in peers}
        into = {peer: np.zeros((4, 3), np.int16).T for peer in peers}
        for peer in peers:
            name = {"task_id": 7} if with_ids else {}
            copies.submit_send(sends[peer], peer, **name)
            copies.submit_recv(into[peer], peer, **name)
        copies.run()
        for peer in peers:
            assert (into[peer] == 10 * peer + group.rank).all()
    # By order, several between the same two.
    peer = 1 - group.rank
    several = [np.zeros(size, np.uint8) for size in (5, 0, 1000)]
    for at, target in enumerate(several):
        copies.submit_send(np.full(target.size, at + 1, np.uint8), peer)
        copies.submit_recv(target, peer)
    copies.run(timeout=20)
    assert all((target == at + 1).all() for at, target in enumerate(several))
    copies.submit_send(several[0], peer)
    copies.clear()
    assert len(copies) == 0
    copies.run()
    with pytest.raises(sl.GroupError, match="no rank 2"):
        copies.submit_send(several[0], 2)
    target = np.zeros(8, np.uint8)
    copies.submit_recv(target[:5], peer)
    copies.submit_recv(target[4:], peer)
    with pytest.raises(sl.GroupError, match="share memory"):
        copies.run()


def test_copies_are_matched_by_id_or_by_order() -> None:
    run_ranks(2, copies_body)


def unmatched_body(group: sl.Group) -> str:
    copies = group.copy_service()
    if group.rank == 0:
        copies.submit_send(np.zeros(4, np.uint8), 1, task_id=3)
    with pytest.raises(sl.GroupError) as caught:
        copies.run()
    return str(caught.value)


def test_unmatched_copies_fail_alike_on_every_rank() -> None:
    one, other = run_ranks(2, unmatched_body)
    assert one == other and "3" in one


def test_addresses_that_mean_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]:
        monkeypatch.delenv(name, raising=False)
    for address in [None, "here", "shm:a/b", "udp://x", "shm:x"]:
        with pytest.raises(sl.GroupError):
            sl.join(address)
    with pytest.raises(sl.GroupError, match="ranks go from 0"):
        sl.join("shm:test-bad-rank", 3, 2)
    with pytest.raises(sl.GroupError, match="did not join"):
        sl.join("shm:test-alone", 0, 2, timeout=0.2)
    with pytest.raises(sl.GroupError, match="seconds"):
        sl.join("shm:test-alone", 0, 1, timeout=-1)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with sl.join("shm:test-by-variables") as group:
        assert (group.rank, group.size, group.members, group.epoch) == (0, 1, [0], 1)
    with pytest.raises(sl.GroupError, match="left"):
        layouts = layout([["tp", 1]], {})
        group.prepare(layouts, layouts)
