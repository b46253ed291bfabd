"""Megatron: a copy service for ``swap_model_weights``.

``swap_model_weights(src_model, target_model, refit_method=CopyService())`` moves the weights of
Megatron's own plan through a group of all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native
from .errors import GroupError

__all__ = ["CopyService"]

if TYPE_CHECKING:
    Base = object
else:
    try:
        from megatron.core.resharding.copy_services.base import CopyService as Base
    except ImportError:
        # Planners of others need no Megatron.
        Base = object


class CopyService(Base):
    """Sends and receives of Megatron's plans, in one batch a run.

    Transfers with an id are matched by it, all others by their order. Every rank of the group
    calls ``run``. Without a group, all ranks of torch's default process group join one.
    """

    def __init__(self, group: _native.Group | None = None) -> None:
        if group is None:
            from .torch import default_group

            group = default_group()
        self.group = group
        self._check_rank()
        self._copies = group.copy_service()

    def _check_rank(self) -> None:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized() and dist.get_rank() != self.group.rank:
            text = f"rank {dist.get_rank()} of torch is rank {self.group.rank} of the group"
            raise GroupError(f"{text}: join it with torch's rank")

    def submit_send(self, src_tensor: Any, dest_rank: int, task_id: int | None = None) -> None:
        """Offers a tensor to a rank in the next run."""
        self._copies.submit_send(src_tensor, dest_rank, task_id)

    def submit_recv(self, dest_tensor: Any, src_rank: int, task_id: int | None = None) -> None:
        """Expects a tensor from a rank in the next run."""
        self._copies.submit_recv(dest_tensor, src_rank, task_id)

    def submit_send_with_id(self, task_id: int, src_tensor: Any, dest_rank: int) -> None:
        """Offers a tensor; Megatron calls this where its plan has ids."""
        self.submit_send(src_tensor, dest_rank, task_id)

    def submit_recv_with_id(self, task_id: int, dest_tensor: Any, src_rank: int) -> None:
        """Expects a tensor; Megatron calls this where its plan has ids."""
        self.submit_recv(dest_tensor, src_rank, task_id)

    def run(self) -> None:
        """Does what was submitted on all ranks."""
        self._copies.run()

    def close(self) -> None:
        """Forgets what was submitted; the group is its maker's to leave."""
        self._copies.clear()
