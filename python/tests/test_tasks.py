"""Tasks on arrays: live and as plans, against the same steps taken one after the other."""

from __future__ import annotations

import random
import threading
import traceback

import numpy as np
import pytest

import syncline as sl


def test_a_scope_gives_what_the_serial_order_gives(rng: random.Random) -> None:
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    arrays = [numbers.integers(0, 100, 24).astype(np.int64) for _ in range(3)]
    expected = [array.copy() for array in arrays]

    def mix(source, target, factor):
        target[:] = (target * 3 + source * factor + 1) % 1009

    with sl.Executor().scope() as s:
        for factor in range(200):
            (one, other), size = rng.sample(range(3), 2), rng.randint(1, 12)
            places = [slice(at, at + size) for at in (rng.randint(0, 12), rng.randint(0, 12))]
            step = rng.choice([1, -1])
            source, target = arrays[one][places[0]][::step], arrays[other][places[1]]
            s.task(lambda x, y, f=factor: mix(x, y, f), [s.read(source), s.update(target)])
            mix(expected[one][places[0]][::step], expected[other][places[1]], factor)
    for array, wanted in zip(arrays, expected):
        assert np.array_equal(array, wanted)


def test_kernels_and_callables_follow_one_another_in_place() -> None:
    a, b = np.arange(16, dtype=np.float32).reshape(4, 4), np.eye(4, dtype=np.float32)
    c = np.zeros((4, 4), np.float32)
    address = c.ctypes.data
    seen = []
    with sl.Executor(devices="cpu").scope() as s:
        s.task("gemm", [s.read(a), s.read(b), s.update(c)], scalars={"alpha": 2.0, "beta": 0.0})
        s.task(lambda x: seen.append((x.sum(), x.ctypes.data, x.flags.writeable)), [s.read(c)])
    assert np.array_equal(c, 2 * a)
    assert seen == [(2 * a.sum(), address, False)]


def test_an_error_of_a_task_surfaces_as_itself() -> None:
    class Mine(Exception):
        pass

    def fail(x):
        raise Mine("no")

    array, later = np.zeros(4), []
    with pytest.raises(Mine) as caught:
        with sl.Executor().scope() as s:
            s.task(fail, [s.update(array)])
            s.task(lambda x: later.append(1), [s.read(array)])
    assert any(frame.name == "fail" for frame in traceback.extract_tb(caught.value.__traceback__))
    assert not later
    with pytest.raises(KeyError):
        with sl.Executor().scope() as s:
            s.task(lambda x: x.fill(1), [s.write(array)])
            raise KeyError("from the block")


def test_misuse_of_scopes_is_refused() -> None:
    ex = sl.Executor()
    frozen, array = np.zeros(4), np.zeros((4, 4), np.float32)
    frozen.flags.writeable = False
    with ex.scope() as s:
        for body, args, match in [
            ("gem", [s.read(array)], "did you mean `gemm`"),
            ("gemm", [s.read(array)], "gemm"),
            (lambda x: 0, [s.write(frozen)], "read-only"),
            (lambda x: 0, [s.read([1, 2])], "not a tensor"),
            (lambda x: 0, [array], "read\\(\\), write\\(\\)"),
            (lambda x: 0, [s.read(np.zeros(0))], "empty"),
            (7, [s.read(array)], "callable"),
        ]:
            with pytest.raises(sl.SynclineError, match=match):
                s.task(body, args)
        with pytest.raises(sl.ProgramError, match="alfa"):
            s.task("scale", [s.read(array), s.write(array)], scalars={"alfa": 1.0})
        s.task(lambda x: x.fill(1), [s.write(array)])
    assert (array == 1).all()
    with pytest.raises(sl.ProgramError, match="ended"):
        s.task(lambda x: 0, [s.read(array)])
    with pytest.raises(sl.ProgramError):
        sl.Executor("nonsense")


def test_scopes_take_tasks_from_tasks_and_threads() -> None:
    ex, count = sl.Executor(), np.zeros(1, np.int64)
    parts = [np.zeros(1, np.int64) for _ in range(8)]

    def add(x):
        x += 1

    with ex.scope() as s:
        def spawn(part):
            s.task(add, [s.update(part)])

        threads = [threading.Thread(target=spawn, args=(part,)) for part in parts]
        for _ in range(5000):
            s.task(add, [s.update(count)])
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert count[0] == 5000 and all(part[0] == 1 for part in parts)


def test_a_scope_that_is_dropped_leaves_no_task_running() -> None:
    started, array = threading.Event(), np.zeros(1 << 16)

    def slow(x):
        started.set()
        for _ in range(50):
            x += 1

    s = sl.Executor().scope()
    s.task(slow, [s.update(array)])
    started.wait(20)
    del s
    value = array[0]
    assert (array == value).all()


def test_plans_run_again_and_again_on_other_arrays() -> None:
    def record(g: sl.Recorder) -> None:
        a, b = g.buffer("A", (4, 6)), g.buffer("B", (6,), np.float32)
        g.task(lambda x, y: y.__setitem__(..., x.sum(axis=0)), [g.read(a[1:3]), g.write(b)])
        g.task("scale", [g.read(b), g.write(b)], scalars={"alpha": 2.0})
        g.task(lambda y, x: x.__iadd__(y), [g.read(b[::-1]), g.update(a[0])])

    plan = sl.Executor().record(record).compile()
    for seed in range(5):
        a = np.random.default_rng(seed).integers(0, 50, (4, 6)).astype(np.float32)
        b, before = np.zeros(6, np.float32), a.copy()
        plan.run({"A": a, "B": b})
        assert np.array_equal(b, 2 * before[1:3].sum(axis=0))
        assert np.array_equal(a[0], before[0] + b[::-1]) and np.array_equal(a[1:], before[1:])
    good = {"A": np.zeros((4, 6), "f4"), "B": np.zeros(6, "f4")}
    for bad, match in [
        ({"A": good["A"]}, "no array for `B`"),
        ({**good, "C": good["B"]}, "has no"),
        ({**good, "B": np.zeros(6)}, "expected f32"),
        ({**good, "A": np.zeros((6, 4), "f4").T}, "one after the other"),
        ({**good, "B": good["A"][0]}, "share memory"),
    ]:
        with pytest.raises(sl.ProgramError, match=match):
            plan.run(bad)


def test_plans_read_arrays_that_are_read_only_and_may_share_memory() -> None:
    def record(g: sl.Recorder) -> None:
        a, b, c = (g.buffer(name, (4,)) for name in "abc")
        g.task(lambda x, y, z: z.__setitem__(..., x + y), [g.read(a), g.read(b), g.write(c)])

    plan = sl.Executor().record(record).compile()
    frozen, c = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    frozen.flags.writeable = False
    plan.run({"a": frozen, "b": frozen, "c": c})
    assert c.tolist() == [0, 2, 4, 6]
    with pytest.raises(sl.SynclineError, match="read-only"):
        plan.run({"a": c, "b": c.copy(), "c": frozen})
    with pytest.raises(sl.ProgramError, match="share memory"):
        plan.run({"a": c, "b": frozen, "c": c})


def test_errors_of_recorded_callables_surface_as_themselves() -> None:
    def record(g: sl.Recorder) -> None:
        g.task(lambda x: x[99], [g.read(g.buffer("A", (4,)))])

    plan = sl.Executor().record(record).compile()
    for _ in range(2):
        with pytest.raises(IndexError):
            plan.run({"A": np.zeros(4, np.float32)})
    with pytest.raises(ZeroDivisionError):
        sl.Executor().record(lambda g: 1 / 0)
    with pytest.raises(sl.ProgramError, match="symbols"):
        sl.Executor().record(lambda g: g.task("scale", [g.read(np.zeros(4))]))
