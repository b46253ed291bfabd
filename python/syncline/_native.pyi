"""What the package's extension module offers. Everything public is in ``syncline``."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeAlias, final

Path: TypeAlias = str | os.PathLike[str]
#: Anything with DLPack, the buffer protocol or ``__array_interface__``.
Tensor: TypeAlias = Any
#: None, True for a bar, or a callable with the bytes done and the bytes in all.
Progress: TypeAlias = bool | Callable[[int, int], Any] | None
#: None, True for every change of element type that can be done, or pairs of types.
Convert: TypeAlias = bool | Mapping[Any, Any] | Iterable[tuple[Any, Any]] | None
Shape: TypeAlias = tuple[int, ...]
#: Start and stop in each dimension.
Box: TypeAlias = tuple[tuple[int, int], ...]

__version__: str

@final
class Layout:
    """Which rank holds which part of which tensor."""

    @staticmethod
    def from_mesh(
        source: Path | Mapping[str, Any], tensors: Mapping[str, Any] | None = None
    ) -> Layout:
        """Reads the mesh form: a path, a text in TOML or JSON, or a dict.

        ``tensors`` are what the rules are for: ``{name: (dtype, shape)}`` or ``{name: tensor}``.
        """
    @staticmethod
    def from_json(source: Path | Mapping[str, Any]) -> Layout:
        """Reads the explicit form: a path, a text or a dict."""
    @staticmethod
    def from_dtensors(state_dict: Mapping[str, Any], offset: int = 0) -> Layout:
        """Returns the layout of torch's DTensors and plain tensors.

        Every rank gets the same layout, and nothing is sent. Rank ``r`` of torch is ``r + offset``.
        """
    @staticmethod
    def from_checkpoint(path: Path) -> Layout:
        """Returns the layout of a checkpoint on disk."""
    @staticmethod
    def _from_shards(
        tensors: Sequence[tuple[str, str, Sequence[int], Sequence[tuple[int, list[int], Any]]]],
    ) -> Layout: ...
    @property
    def world(self) -> int:
        """One more than the highest rank that holds something."""
    @property
    def names(self) -> list[str]:
        """The names of the tensors."""
    @property
    def unproven(self) -> list[str]:
        """Why it is not known to be right for its model; empty if it is, or nothing has asked."""
    def spec(self, name: str) -> tuple[str, Shape]:
        """Returns the element type and the shape of a whole tensor."""
    def pieces(self, name: str, rank: int) -> list[tuple[Box, Shape]]:
        """Returns what a rank holds: boxes of the whole tensor, and where each starts locally."""
    def local_shape(self, name: str, rank: int) -> Shape | None:
        """Returns the shape of what a rank holds of a tensor; None where it holds nothing."""
    def local_name(self, name: str, rank: int) -> str:
        """Returns what a rank itself calls a tensor: layers may be numbered anew on each."""
    def to_json(self) -> str:
        """Returns the explicit form."""
    def __len__(self) -> int: ...
    def __contains__(self, name: str) -> bool: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Plan:
    """What moves where to get from one layout to another."""

    @property
    def bytes_total(self) -> int:
        """Bytes written to all destinations."""
    @property
    def bytes_moved(self) -> int:
        """Bytes that move between different ranks."""
    @property
    def rounds(self) -> int:
        """Rounds, in each of which a rank sends to one rank and receives from one at most."""
    @property
    def rounds_lower_bound(self) -> int:
        """Rounds that any schedule needs."""
    @property
    def world(self) -> int:
        """One more than the highest rank of either layout."""
    @property
    def ops(self) -> list[dict[str, Any]]:
        """The transfers, as in the JSON form."""
    def to_json(self) -> str:
        """Returns the plan with its schedule in JSON."""
    def _repr_html_(self) -> str: ...
    def explain(self, name: str, index: Sequence[int]) -> Any:
        """Says where an element of a tensor comes from and where it goes."""

def plan(src: Layout, dst: Layout, convert: Convert = None, slot_bytes: int = ...) -> Plan:
    """Plans the way from one layout to another."""

@final
class Group:
    """This process's place in a group. Use it as a context manager."""

    @property
    def rank(self) -> int:
        """This process."""
    @property
    def size(self) -> int:
        """How many ranks there are."""
    @property
    def epoch(self) -> int:
        """The version of the membership."""
    @property
    def members(self) -> list[int]:
        """The ranks that are in it."""
    def prepare(
        self,
        src: Layout,
        dst: Layout,
        convert: Convert = None,
        delta: bool = False,
        checksums: bool = False,
    ) -> Refit:
        """Prepares the way from one layout to another; every rank passes the same.

        With ``delta`` a run sends only what has changed since the run before, which takes as much
        memory again as this rank sends and receives.
        """
    def recover(self, timeout: float | None = None) -> None:
        """Goes on after a failure, with the members that are left; each of them calls it.

        Calls after the death of members go on by themselves.
        """
    def copy_service(self) -> CopyService:
        """Returns a service for single copies."""
    def close(self) -> None:
        """Leaves the group."""
    def __enter__(self) -> Group: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None: ...

def join(
    address: str | None = None,
    rank: int | None = None,
    size: int | None = None,
    token: str | None = None,
    timeout: float = 60.0,
) -> Group:
    """Joins a group and waits until all ranks have.

    ``address`` is ``"shm:name"`` between processes of one machine, ``"tcp://host:port/name"``
    between those of any, or ``"mpi:"``. None takes torchrun's MASTER_ADDR, MASTER_PORT, RANK and
    WORLD_SIZE. ``token`` is a secret that all members of a TCP group know; it is never sent.
    ``timeout`` is in seconds, also for calls that are given none.
    """

@final
class Refit:
    """A movement from one layout to another that runs again and again."""

    def run(
        self,
        sources: Mapping[str, Tensor] | None = None,
        targets: Mapping[str, Tensor] | None = None,
        version: int | None = None,
        timeout: float | None = None,
        progress: Progress = None,
    ) -> RefitStats:
        """Moves everything, from and to tensors that are used in place.

        Do not write sources or use targets meanwhile. After a failure targets hold old and new
        values mixed.
        """
    @property
    def sources(self) -> dict[str, tuple[str, Shape]]:
        """Element types and shapes of what this rank holds before, by name."""
    @property
    def targets(self) -> dict[str, tuple[str, Shape]]:
        """Element types and shapes of what this rank holds afterwards, by name."""
    @property
    def bytes_moved(self) -> int:
        """Bytes that move between different ranks, of the whole group."""

@final
class RefitStats:
    """What one run of a refit did on this rank."""

    @property
    def seconds(self) -> float:
        """How long it took."""
    @property
    def bytes_sent(self) -> int:
        """Bytes of tensors sent to other ranks."""
    @property
    def bytes_received(self) -> int:
        """Bytes of tensors received from other ranks."""
    @property
    def bytes_kept(self) -> int:
        """Bytes copied within this rank."""
    @property
    def changed_fraction(self) -> float:
        """The share of the values that was sent; 1.0 where all are."""
    @property
    def version(self) -> int:
        """What was passed as version, or one more than before."""

@final
class CopyService:
    """Single copies between ranks, matched by id, or by their order where they have none."""

    def submit_send(self, tensor: Tensor, dest_rank: int, task_id: int | None = None) -> None:
        """Offers a tensor to a rank in the next run."""
    def submit_recv(self, tensor: Tensor, src_rank: int, task_id: int | None = None) -> None:
        """Expects a tensor of as many bytes from a rank in the next run."""
    def run(self, timeout: float | None = None) -> None:
        """Does what all ranks have submitted; every rank calls it.

        Where sends and receives do not match, nothing is written and every rank gets the error.
        """
    def clear(self) -> None:
        """Forgets what was submitted."""
    def __len__(self) -> int: ...

@final
class Summary:
    """What a conversion did."""

    @property
    def tensors(self) -> int:
        """Tensors of the destination."""
    @property
    def files(self) -> int:
        """Files written."""
    @property
    def files_kept(self) -> int:
        """Files that an earlier run had written."""
    @property
    def bytes(self) -> int:
        """Bytes written."""
    @property
    def seconds(self) -> float:
        """How long it took."""
    @property
    def unproven(self) -> list[str]:
        """Why the layout is not known to be right for the model, where that was allowed."""
    @property
    def unnamed(self) -> list[str]:
        """Patterns of tensors that no rule names: these are replicated."""

def convert(
    src: Path,
    dst: Path,
    to: str | Path | Mapping[str, Any] | Layout,
    rules: Path | None = None,
    dtype: Any = None,
    pes: int | None = None,
    resume: bool = False,
    progress: Progress = None,
    allow_unproven: bool = False,
    file_bytes: int = ...,
) -> Summary:
    """Converts a checkpoint; the destination appears whole or not at all.

    ``to`` is axes such as ``"tp=2,pp=2"``, ``"hf"``, or a layout or the file of one.
    """

@final
class Difference:
    """A shard that is not what the other checkpoint says."""

    @property
    def tensor(self) -> str:
        """The tensor."""
    @property
    def rank(self) -> int:
        """The rank of the second checkpoint."""
    @property
    def element(self) -> int:
        """The first element that differs, counted through the shard in row-major order."""
    @property
    def index(self) -> list[int]:
        """The index of that element in each dimension of the shard."""
    @property
    def count(self) -> int:
        """How many elements of the shard differ."""
    @property
    def expected(self) -> str:
        """What the first checkpoint says of that element."""
    @property
    def held(self) -> str:
        """What the second one holds."""

@final
class Report:
    """How two checkpoints compare."""

    @property
    def same(self) -> bool:
        """True if every element of every tensor is the same."""
    @property
    def differences(self) -> list[Difference | str]:
        """What differs; a text where tensors do not match at all."""
    @property
    def unproven(self) -> list[str]:
        """Why the second one's layout is not known to be right for the model."""
    def __bool__(self) -> bool: ...

def verify(a: Path, b: Path) -> Report:
    """Compares two checkpoints, every element of every tensor, whatever their layouts."""

def devices() -> list[dict[str, Any]]:
    """Returns every device found, and what it can do."""

def end_callables() -> int: ...
def dtype_name(dtype: Any) -> str:
    """Returns our name of an element type of numpy or torch."""

def dtype_bytes(name: str) -> int:
    """Returns the bytes of an element."""

def describe(tensor: Tensor) -> tuple[Shape, str]:
    """Returns shape and element type of a tensor."""

def dtypes() -> list[str]:
    """Returns the names of all element types."""

ShardMemory: TypeAlias = tuple[int, Any, Shape, list[tuple[Shape, Shape, Shape]]]

@final
class CheckpointFiles:
    def __init__(self, path: Path) -> None: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def format(self) -> str: ...
    def names(self) -> list[str]: ...
    def has(self, name: str) -> bool: ...
    def spec(self, name: str) -> tuple[str, str, Shape]: ...
    def shards(self, name: str, rank: int | None) -> list[ShardMemory]: ...

@final
class RunResult:
    @property
    def seconds(self) -> float: ...
    def names(self) -> list[str]: ...
    def array(self, name: str) -> tuple[str, Shape, bytearray]: ...
    def page(self) -> str: ...

class Executor:
    def __init__(self, devices: str | Sequence[str]) -> None: ...
    @property
    def devices(self) -> list[str]: ...
    def open(self, name: str) -> Scope: ...

@final
class Scope:
    def submit(
        self,
        body: Any,
        args: Sequence[tuple[str, Tensor]],
        views: tuple[Any, ...] | None,
        scalars: dict[str, Any] | None,
        name: str,
        priority: int,
    ) -> None: ...
    def finish(self, cancel: bool) -> None: ...

@final
class Graph:
    def __init__(self) -> None: ...
    def buffer(self, name: str, bytes: int) -> None: ...
    def task(
        self,
        body: Any,
        args: Sequence[tuple[str, str, str, int, list[int], list[int]]],
        scalars: dict[str, Any] | None,
        name: str,
        priority: int,
        device: str | None,
    ) -> None: ...
    def compile(self, executor: Executor) -> CompiledPlan: ...

@final
class CompiledPlan:
    def run(self, arrays: dict[str, Tensor], views: dict[int, tuple[Any, ...]]) -> None: ...

def run_program(
    source: Any,
    devices: str | Sequence[str],
    mode: Literal["plan", "stream", "serial"] | str,
    repeat: int,
    check: bool,
    inputs: dict[str, Tensor],
    outputs: list[str],
    trust_kernels: bool,
    progress: Progress,
) -> RunResult: ...
def main(arguments: list[str], command: list[str]) -> int: ...
