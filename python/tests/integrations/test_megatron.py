"""Megatron's own planner and executor, with our copy service between processes."""

from __future__ import annotations

import types

import pytest
import torch
import torch.distributed as dist
from conftest import run_ranks
from megatron.core.resharding import execution, refit
from megatron.core.resharding.copy_services.base import CopyService as Base
from megatron.core.resharding.utils import ReshardPlan, TransferOp

import syncline as sl
from syncline.megatron import CopyService


class Holder(torch.nn.Module):
    """What each rank has of the columns or rows of two weights."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))


def weights() -> dict[str, torch.Tensor]:
    numbers = torch.Generator().manual_seed(3)
    return {"a": torch.randn(8, 12, generator=numbers), "b": torch.randn(16, generator=numbers)}


def part(name: str, rank: int, parts: int) -> torch.Tensor:
    dim = 1 if name == "a" else 0
    return weights()[name].chunk(parts, dim)[rank].contiguous()


def plan_of(rank: int, before: int, after: int) -> ReshardPlan:
    """Transfers of `before` parts to `after` parts, in Megatron's own form."""
    sends, receives, task = [], [], 0
    for name, dim, size in [("a", 1, 12), ("b", 0, 16)]:
        for dst in range(after):
            for src in range(before):
                low = max(src * size // before, dst * size // after)
                high = min((src + 1) * size // before, (dst + 1) * size // after)
                if low >= high:
                    continue
                task += 1

                def at(offset: int, low: int = low, high: int = high, dim: int = dim):
                    inner = slice(low - offset, high - offset)
                    return (slice(None), inner) if dim == 1 else (inner,)

                here, there = at(src * size // before), at(dst * size // after)
                make = lambda peer, is_send, mine, other: TransferOp(  # noqa: E731
                    param_name=name, peer_rank=peer, is_send=is_send, my_slice=mine,
                    peer_slice=other, task_id=task,
                )  # fmt: skip
                if rank == src:
                    sends.append(make(dst, True, here, there))
                if rank == dst:
                    receives.append(make(src, False, there, here))
    return ReshardPlan(send_ops=sends, recv_ops=receives)


def executes_body(rank: int, size: int) -> None:
    # Megatron synchronises a GPU at the end, which this machine has none of.
    torch.cuda.synchronize = lambda *_: None
    service = CopyService()
    assert isinstance(service, Base) and service.group.size == size
    for before, after in [(4, 2), (2, 4), (1, 4), (4, 1), (2, 2), (4, 4)]:
        held = {n: part(n, rank, before) for n in weights()} if rank < before else {}
        wanted = {n: part(n, rank, after) for n in weights()} if rank < after else {}
        source = Holder(held)
        target = Holder({name: torch.zeros_like(tensor) for name, tensor in wanted.items()})
        execution.execute_reshard_plan(plan_of(rank, before, after), source, target, service)
        for name, tensor in wanted.items():
            assert torch.equal(getattr(target, name), tensor), (before, after, name)
    service.submit_send(torch.zeros(3), rank)
    service.close()
    service.run()


def test_megatrons_executor_moves_weights_by_our_service() -> None:
    run_ranks(4, executes_body)


def swap_body(rank: int, size: int) -> None:
    """TP4 on all ranks to TP2 twice, planned by Megatron from its own attributes."""
    torch.cuda.synchronize = lambda *_: None
    # Objects of torch's default group are sent in CPU memory.
    torch.cuda.current_device = lambda: "cpu"

    def groups(tp: int) -> types.SimpleNamespace:
        def mine(lists):
            made = [dist.new_group(ranks) for ranks in lists]
            return next(one for one, ranks in zip(made, lists) if rank in ranks)

        return types.SimpleNamespace(
            tp=mine([list(range(at, at + tp)) for at in range(0, size, tp)]),
            dp=mine([list(range(at, size, tp)) for at in range(tp)]),
            pp=mine([[one] for one in range(size)]),
            ep=mine([[one] for one in range(size)]),
            expt_tp=None, expt_dp=None,
        )  # fmt: skip

    def built(tp: int, fill: bool) -> torch.nn.Module:
        tensors = {name: part(name, rank % tp, tp) for name in weights()}
        holder = Holder(tensors if fill else {n: torch.zeros_like(t) for n, t in tensors.items()})
        for name, parameter in holder.named_parameters():
            parameter.tensor_model_parallel = True
            parameter.partition_dim = 1 if name == "a" else 0
            parameter.partition_stride = 1
        holder.config = types.SimpleNamespace(num_moe_experts=None)
        holder.pg_collection = groups(tp)
        return holder

    service = CopyService()
    for before, after in [(4, 2), (2, 4), (1, 4)]:
        source, target = built(before, True), built(after, False)
        refit.swap_model_weights([source], [target], service)
        for name in weights():
            assert torch.equal(getattr(target, name), part(name, rank % after, after)), (before, after)
        refit.clear_all_caches() if hasattr(refit, "clear_all_caches") else None


def test_swap_model_weights_takes_our_service() -> None:
    run_ranks(4, swap_body)


def test_without_a_group_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(sl.GroupError):
        CopyService()
