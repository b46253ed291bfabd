"""Tasks on arrays: scopes that run them at once, and plans that run them again and again."""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from . import _native
from ._dtypes import numpy_dtype
from .errors import ProgramError

#: A kernel by name, or a callable that gets a view for each argument.
Body = str | Callable[..., Any]


#: The threads that run callables of tasks.
_running: set[int] = set()
#: How long the end of the interpreter waits for callables that do not end by themselves.
_END_SECONDS = 10.0


def run_callable(body: Callable[..., Any], views: tuple[Any, ...]) -> None:
    """Calls the callable of a task, on a thread of the runtime."""
    thread = threading.get_ident()
    _running.add(thread)
    try:
        body(*views)
    finally:
        _running.discard(thread)


def _end() -> None:
    """Ends callables before the interpreter ends: its memory must not go under them."""
    until = time.monotonic() + _END_SECONDS
    while _native.end_callables() and time.monotonic() < until:
        for thread in list(_running):
            error = ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)
        time.sleep(0.01)


atexit.register(_end)


class Arg(NamedTuple):
    """An argument of a task: what the task does with it, and the array or symbol."""

    access: str
    of: Any


def read(array: Any) -> Arg:
    """Makes an argument that the task reads."""
    return Arg("read", array)


def write(array: Any) -> Arg:
    """Makes an argument that the task writes without reading it."""
    return Arg("write", array)


def update(array: Any) -> Arg:
    """Makes an argument that the task reads and writes."""
    return Arg("update", array)


def root(array: Any) -> Any:
    """Returns the array that ``array`` is a view of, or the address and the bytes of its memory."""
    while isinstance(array, np.ndarray) and isinstance(array.base, np.ndarray):
        array = array.base
    if hasattr(array, "untyped_storage"):
        storage = array.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    return array


def view(array: Any, writes: bool) -> Any:
    """Returns the view that a callable gets: of numpy where numpy has such elements."""
    _native.describe(array)  # Refuses what is not a tensor.
    if isinstance(array, np.ndarray):
        seen = array.view()
    elif hasattr(array, "untyped_storage"):
        try:
            seen = array.detach().numpy()
        except TypeError:
            return array.detach()
    elif hasattr(array, "__array_interface__"):
        seen = np.asarray(array)
    else:
        seen = np.asarray(memoryview(array))
    if not writes:
        seen = seen.view()
        seen.flags.writeable = False
    return seen


def _name(body: Body, name: str | None) -> str:
    if name is None:
        name = body if isinstance(body, str) else getattr(body, "__name__", None)
    return name or "task"


def _checked(body: Body, args: Sequence[Any], scalars: Mapping[str, Any] | None) -> None:
    if not isinstance(body, str) and not callable(body):
        raise ProgramError(f"a task is a kernel by name or a callable, not {type(body).__name__}")
    if not isinstance(body, str) and scalars:
        raise ProgramError("scalars are for kernels: a callable has what it needs with it")
    for arg in args:
        if not isinstance(arg, Arg):
            raise ProgramError("arguments are made by read(), write() and update()")


class Scope:
    """Tasks that are awaited together; use it as a context manager.

    Tasks run as soon as what they wait for has ended, in the order that their arguments imply. Do
    not use the arrays elsewhere until the scope has ended.
    """

    read = staticmethod(read)
    write = staticmethod(write)
    update = staticmethod(update)

    def __init__(self, scope: _native.Scope) -> None:
        self._scope = scope

    def task(
        self,
        body: Body,
        args: Sequence[Arg] = (),
        scalars: Mapping[str, Any] | None = None,
        name: str | None = None,
        priority: int = 0,
    ) -> None:
        """Submits a task: a built-in kernel by name, or a callable that gets numpy views."""
        _checked(body, args, scalars)
        views = None
        if not isinstance(body, str):
            views = tuple(view(arg.of, arg.access != "read") for arg in args)
        given = dict(scalars) if scalars else None
        self._scope.submit(body, list(args), views, given, _name(body, name), priority)

    def __enter__(self) -> Scope:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self._scope.finish(error is not None)


class Symbol:
    """An array of a recording that is given when the plan runs; sliced like an array."""

    def __init__(self, name: str, dtype: str, stand_in: np.ndarray[Any, Any], index: Any) -> None:
        self.name = name
        self.dtype = dtype
        self._stand_in = stand_in
        self._index = index

    @property
    def shape(self) -> tuple[int, ...]:
        """The elements along each dimension."""
        shape: tuple[int, ...] = self._stand_in.shape
        return shape

    def __getitem__(self, index: Any) -> Symbol:
        part = self._stand_in[index]
        if not isinstance(part, np.ndarray) or part.base is None:
            raise ProgramError("a symbol is sliced by numbers and slices that leave a dimension")
        return Symbol(self.name, self.dtype, part, (*self._index, index))


class _StandIn:
    """Memory that is never touched: numpy computes the views of it."""

    #: Larger than any negative stride reaches back.
    BASE = 1 << 46

    def __init__(self, shape: tuple[int, ...], itemsize: int) -> None:
        self.__array_interface__ = {
            "version": 3, "typestr": f"|V{itemsize}", "shape": shape, "data": (self.BASE, False),
        }  # fmt: skip


class Recorder:
    """Records tasks for a plan."""

    read = staticmethod(read)
    write = staticmethod(write)
    update = staticmethod(update)

    def __init__(self) -> None:
        self._graph = _native.Graph()
        self._symbols: dict[str, Symbol] = {}
        self._callables: dict[int, list[Arg]] = {}
        self._count = 0

    def buffer(self, name: str, shape: Sequence[int], dtype: Any = "f32") -> Symbol:
        """Makes a symbol for an array that is given when the plan runs."""
        kind = _native.dtype_name(dtype)
        sizes = tuple(int(size) for size in shape)
        itemsize = _native.dtype_bytes(kind)
        self._graph.buffer(name, int(np.prod(sizes, dtype=np.int64)) * itemsize)
        stand_in = np.asarray(_StandIn(sizes, itemsize))
        symbol = Symbol(name, kind, stand_in, ())
        self._symbols[name] = symbol
        return symbol

    def task(
        self,
        body: Body,
        args: Sequence[Arg] = (),
        scalars: Mapping[str, Any] | None = None,
        name: str | None = None,
        priority: int = 0,
        device: str | None = None,
    ) -> None:
        """Records a task: a built-in kernel by name, or a callable that gets numpy views."""
        _checked(body, args, scalars)
        described = []
        for access, symbol in args:
            if not isinstance(symbol, Symbol):
                raise ProgramError("a recording takes symbols: make them by buffer()")
            stand_in = symbol._stand_in
            offset = stand_in.__array_interface__["data"][0] - _StandIn.BASE
            shape, strides = list(stand_in.shape), list(stand_in.strides)
            described.append((access, symbol.name, symbol.dtype, offset, shape, strides))
        given = dict(scalars) if scalars else None
        self._graph.task(body, described, given, _name(body, name), priority, device)
        if not isinstance(body, str):
            self._callables[self._count] = list(args)
        self._count += 1


class Recording:
    """What was recorded; compile it to run it."""

    def __init__(self, executor: Executor, recorder: Recorder) -> None:
        self._executor = executor
        self._recorder = recorder

    def compile(self) -> CompiledPlan:
        """Plans the tasks for the executor's devices, once."""
        compiled = self._recorder._graph.compile(self._executor._executor)
        return CompiledPlan(compiled, self._recorder)


class CompiledPlan:
    """A plan that runs again and again, on other arrays each time."""

    def __init__(self, compiled: _native.CompiledPlan, recorder: Recorder) -> None:
        self._compiled = compiled
        self._symbols = dict(recorder._symbols)
        self._callables = dict(recorder._callables)

    def run(self, arrays: Mapping[str, Any]) -> None:
        """Runs the plan on arrays by the names of the symbols, in place."""
        unknown = set(arrays) - set(self._symbols)
        if unknown:
            raise ProgramError(f"the plan has no {sorted(unknown)}: it has {sorted(self._symbols)}")
        for name, array in arrays.items():
            symbol = self._symbols[name]
            shape, dtype = _native.describe(array)
            if (shape, dtype) != (symbol.shape, symbol.dtype):
                wanted = f"{symbol.dtype} of {symbol.shape}"
                raise ProgramError(f"`{name}`: expected {wanted}, got {dtype} of {shape}")
        views = {
            at: tuple(self._view(arrays, arg) for arg in args)
            for at, args in self._callables.items()
        }
        self._compiled.run(dict(arrays), views)

    def _view(self, arrays: Mapping[str, Any], arg: Arg) -> Any:
        symbol = arg.of
        if symbol.name not in arrays:
            raise ProgramError(f"no array for `{symbol.name}`")
        part = arrays[symbol.name]
        for index in symbol._index:
            part = part[index]
        return view(part, arg.access != "read")


class Executor:
    """Runs tasks on arrays, which are used in place.

    >>> a, b = np.arange(4.0), np.zeros(4)
    >>> ex = Executor()
    >>> def double(x, y):
    ...     y[:] = 2 * x
    >>> with ex.scope() as s:
    ...     s.task(double, [s.read(a), s.write(b)])
    ...     s.task("scale", [s.read(b), s.write(a)], scalars={"alpha": 10.0})
    >>> a
    array([ 0., 20., 40., 60.])
    """

    def __init__(self, devices: str | Sequence[str] = "cpu") -> None:
        self._executor = _native.Executor(devices)

    @property
    def devices(self) -> list[str]:
        """The devices by name."""
        return self._executor.devices

    def scope(self, name: str = "scope") -> Scope:
        """Opens a scope: its tasks are awaited at its end, where errors are raised."""
        return Scope(self._executor.open(name))

    def record(self, record: Callable[[Recorder], Any]) -> Recording:
        """Calls ``record`` with a recorder and returns what it has recorded."""
        recorder = Recorder()
        record(recorder)
        return Recording(self, recorder)
