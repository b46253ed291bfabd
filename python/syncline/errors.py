"""What can go wrong: one base class, and a subclass for each part of the package."""

__all__ = [
    "CheckpointError",
    "GroupError",
    "LayoutError",
    "ProgramError",
    "SynclineError",
    "UnknownTensorError",
]


class SynclineError(Exception):
    """The base of all errors of this package."""


class LayoutError(SynclineError):
    """A layout or a plan that cannot be made, or tensors that do not fit one."""


class GroupError(SynclineError):
    """A group that cannot be joined or has failed: the same on every member."""


class CheckpointError(SynclineError):
    """A checkpoint that cannot be read, converted or written."""


class ProgramError(SynclineError):
    """A program, task or plan that cannot be run, or did not end well."""


class UnknownTensorError(CheckpointError, KeyError):
    """A checkpoint has no tensor of that name."""

    def __str__(self) -> str:
        return Exception.__str__(self)
