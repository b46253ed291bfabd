"""Refit weights between parallel layouts, convert checkpoints, run tasks on arrays.

A *tensor* is anything with DLPack, the buffer protocol or ``__array_interface__``: numpy arrays,
torch tensors in host memory, memoryviews. It is used in place, without a copy. Long calls release
the interpreter's lock, end by Ctrl-C, and take ``progress``: None, True for a bar, or a callable
``f(done_bytes, total_bytes)``. Errors are ``SynclineError`` or a subclass.

>>> import numpy as np
>>> rows = Layout.from_mesh({"mesh": {"axes": [["tp", 2]]},
...     "tensor": [{"match": "w", "shard": [{"dim": 0, "axis": "tp"}]}]}, {"w": ("f32", (4, 2))})
>>> rows.pieces("w", 1)
[(((2, 4), (0, 2)), (0, 0))]
>>> whole = Layout.from_mesh("[mesh]\\naxes = [[\\"tp\\", 1]]\\n", {"w": ("f32", (4, 2))})
>>> plan(rows, whole).bytes_moved
16
"""

from __future__ import annotations

from ._checkpoint import Checkpoint, Tensor, open_checkpoint as open
from ._boxes import Place
from ._learn import LearnedLayout, layout_of_ranks, learn_layout
from ._native import (
    CopyService,
    Difference,
    Group,
    Layout,
    Plan,
    Refit,
    RefitStats,
    Report,
    Summary,
    __version__,
    convert,
    devices,
    join,
    plan,
    verify,
)
from ._program import RunResult, run
from ._tasks import CompiledPlan, Executor, Recorder, Recording, Scope, Symbol
from .errors import (
    CheckpointError,
    GroupError,
    LayoutError,
    ProgramError,
    SynclineError,
    UnknownTensorError,
)

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CompiledPlan",
    "CopyService",
    "Difference",
    "Executor",
    "Group",
    "GroupError",
    "Layout",
    "LayoutError",
    "LearnedLayout",
    "Place",
    "Plan",
    "ProgramError",
    "Recorder",
    "Recording",
    "Refit",
    "RefitStats",
    "Report",
    "RunResult",
    "Scope",
    "Summary",
    "Symbol",
    "SynclineError",
    "Tensor",
    "UnknownTensorError",
    "__version__",
    "convert",
    "devices",
    "layout_of_ranks",
    "learn_layout",
    "join",
    "open",
    "plan",
    "run",
    "verify",
]
