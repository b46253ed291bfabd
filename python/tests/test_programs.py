"""Programs and devices."""

from __future__ import annotations

import json

import numpy as np
import pytest

import syncline as sl


def view(buffer: int, shape: list[int]) -> dict:
    strides = [4 * int(np.prod(shape[at + 1 :])) for at in range(len(shape))]
    return {"buffer": buffer, "offset": 0, "dtype": "f32", "shape": shape, "strides": strides}


def matrices(size: int = 8) -> dict:
    names = ["A", "B", "C"]
    buffers = [{"id": at, "name": name, "bytes": 4 * size * size} for at, name in enumerate(names)]
    args = [
        {"access": access, **view(at, [size, size])}
        for at, access in enumerate(["input", "input", "inout"])
    ]
    task = {"id": 0, "kernel": "gemm", "scalars": {"alpha": 2.0, "beta": 1.0}, "args": args}
    return {"format": "syncline-trace", "version": 1, "buffers": buffers, "tasks": [task]}


@pytest.mark.parametrize("mode", ["plan", "stream", "serial"])
def test_programs_run_on_arrays(mode: str) -> None:
    numbers = np.random.default_rng(5)
    a, b, c = (numbers.integers(0, 9, (8, 8)).astype(np.float32) for _ in range(3))
    calls: list[tuple[int, int]] = []
    run = sl.run(
        matrices(), mode=mode, repeat=2, check=True, inputs={"A": a, "B": b.T.copy().T, "C": c},
        outputs=["C"], progress=lambda *done: calls.append(done),
    )  # fmt: skip
    assert np.array_equal(run.outputs["C"], 2 * a @ b + c)
    assert run.seconds >= 0 and "C" in repr(run)
    with pytest.raises(KeyError):
        run.outputs["D"]


def test_programs_are_dicts_texts_bytes_and_paths(tmp_path) -> None:
    text = json.dumps(matrices())
    path = tmp_path / "program.json"
    path.write_text(text)
    for program in [matrices(), text, text.encode(), path, str(path)]:
        assert not sl.run(program).outputs["C"].any()


def test_reports_are_pages_that_notebooks_show(tmp_path) -> None:
    run = sl.run(matrices())
    page = run.report(tmp_path / "report.html")
    assert page.lstrip().lower().startswith("<!doctype html")
    assert (tmp_path / "report.html").read_text() == page == run.report()
    assert run._repr_html_().startswith("<iframe") and "srcdoc" in run._repr_html_()


def test_bad_programs_are_refused(tmp_path) -> None:
    for program in [{}, "{}", b"\0\1", tmp_path / "none.json", 7, None]:
        with pytest.raises(sl.ProgramError):
            sl.run(program)
    with pytest.raises(sl.ProgramError, match="mode"):
        sl.run(matrices(), mode="slow")
    with pytest.raises(sl.ProgramError, match="did you mean"):
        sl.run(matrices(), inputs={"AA": np.zeros((8, 8), np.float32)})
    with pytest.raises(sl.ProgramError, match="256 bytes"):
        sl.run(matrices(), inputs={"A": np.zeros(8, np.float32)})
    with pytest.raises(sl.ProgramError):
        sl.run(matrices(), devices="quantum")
    with pytest.raises(sl.ProgramError):
        sl.run(matrices(), outputs=["Z"])


def test_the_cpu_is_a_device() -> None:
    found = sl.devices()
    assert any(one["device"] == "cpu:0" for one in found)
    assert all(one["memory_bytes"] > 0 for one in found)
