"""Programs: traces that name kernels, and what a run of one leaves."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _native
from ._dtypes import numpy_dtype
from .errors import ProgramError


class Outputs(Mapping[str, np.ndarray[Any, Any]]):
    """The buffers that a run kept, as arrays by name."""

    def __init__(self, run: _native.RunResult) -> None:
        self._run = run

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        try:
            dtype, shape, contents = self._run.array(name)
        except ProgramError as error:
            raise KeyError(str(error)) from None
        return np.frombuffer(contents, numpy_dtype(dtype)).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._run.names())

    def __len__(self) -> int:
        return len(self._run.names())


class RunResult:
    """A program that has run. Notebooks show its page."""

    def __init__(self, run: _native.RunResult) -> None:
        self._run = run
        self.outputs = Outputs(run)

    @property
    def seconds(self) -> float:
        """From the start of the first task to the end of the last."""
        return self._run.seconds

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """Returns the page that explains the run, and writes it to ``path`` if that is given."""
        page = self._run.page()
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_html_(self) -> str:
        return show(self.report())

    def __repr__(self) -> str:
        return f"RunResult({self.seconds:.6f} s, outputs {sorted(self.outputs)})"


def show(page: str) -> str:
    """Returns a frame with a whole page in it: its styles and scripts stay its own."""
    frame = "width:100%;height:720px;border:1px solid #ccc"
    return f'<iframe style="{frame}" srcdoc="{html.escape(page)}"></iframe>'


def run(
    program: Any,
    devices: str | Sequence[str] = "cpu",
    mode: str = "plan",
    repeat: int = 1,
    check: bool = False,
    inputs: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = (),
    progress: bool | Callable[[int, int], Any] | None = None,
    trust_kernels: bool = False,
) -> RunResult:
    """Runs a program: a dict, a text in JSON, the bytes of a capture, or a path.

    ``inputs`` are the contents of buffers by name before the first task, ``outputs`` the buffers
    to keep beside results. With ``check`` the run is compared with the serial run, and differences
    are an error.

    >>> view = {"dtype": "f32", "shape": [4], "strides": [4], "buffer": 0, "offset": 0}
    >>> program = {"format": "syncline-trace", "version": 1,
    ...     "buffers": [{"id": 0, "name": "x", "bytes": 16}],
    ...     "tasks": [{"id": 0, "kernel": "scale", "scalars": {"alpha": 2.0},
    ...         "args": [{"access": "input", **view}, {"access": "output_existing", **view}]}]}
    >>> run(program, inputs={"x": np.ones(4, np.float32)}).outputs["x"]
    array([2., 2., 2., 2.], dtype=float32)
    """
    source: Any = program
    if isinstance(program, Mapping):
        source = json.dumps(program).encode()
    elif isinstance(program, str) and program.lstrip().startswith("{"):
        source = program.encode()
    elif isinstance(program, (bytearray, memoryview)):
        source = bytes(program)
    elif not isinstance(program, (bytes, str, os.PathLike)):
        kind = type(program).__name__
        raise ProgramError(f"a program is a dict, a text, bytes or a path, not {kind}")
    given = dict(inputs or {})
    run = _native.run_program(
        source, devices, mode, repeat, check, given, list(outputs), trust_kernels, progress
    )
    return RunResult(run)
