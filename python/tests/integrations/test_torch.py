"""torch: tensors in place, DTensors as torch itself lays them out, refits between meshes."""

from __future__ import annotations

import random
import uuid

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import _StridedShard

from conftest import run_ranks

import syncline as sl
import syncline.torch as st

MESH = "[mesh]\naxes = [['tp', 1]]\n"


def one_rank() -> sl.Group:
    return sl.join(f"shm:test-{uuid.uuid4().hex}", 0, 1)


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bool, torch.int64],
)
def test_tensors_of_torch_are_used_in_place(dtype: torch.dtype) -> None:
    bits = torch.randint(0, 2, (6, 8 * dtype.itemsize), dtype=torch.uint8)
    source = torch.nn.Parameter(bits.view(dtype), requires_grad=dtype.is_floating_point)
    targets = {
        "plain": torch.zeros(6, 8, dtype=dtype),
        "transposed": torch.zeros(8, 6, dtype=dtype).t(),
        "column": torch.zeros(6, 16, dtype=dtype)[:, ::2],
    }
    layout = sl.Layout.from_mesh(MESH, {"w": source})
    with one_rank() as group:
        refit = group.prepare(layout, layout)
        for kind, target in targets.items():
            address = target.data_ptr()
            refit.run({"w": source}, {"w": target})
            assert target.data_ptr() == address
            same = target.contiguous().view(torch.uint8) == bits.reshape(6, -1)
            assert same.all(), kind


def test_tensors_that_are_no_memory_are_refused() -> None:
    freed = torch.zeros(4)
    freed.untyped_storage().resize_(0)
    small = torch.zeros(4)
    small.untyped_storage().resize_(8)
    z = torch.zeros(2, dtype=torch.complex64)
    layout = sl.Layout.from_mesh(MESH, {"w": torch.zeros(4)})
    with one_rank() as group:
        refit = group.prepare(layout, layout)
        for bad, match in [
            (freed, "freed"),
            (small, "freed"),
            (torch.zeros(4, device="meta"), "device meta"),
            (torch.zeros(4).to_sparse(), "sparse"),
            (z.conj().imag, "resolve"),
            (torch.zeros(1).expand(4), "share memory"),
        ]:
            with pytest.raises(sl.SynclineError, match=match):
                refit.run({"w": torch.ones(4)}, {"w": bad})
        target = torch.zeros(8)
        both = {"w": target[:4]}
        with pytest.raises(sl.LayoutError, match="share memory"):
            refit.run({"w": target[2:6]}, both)
        refit.run({"w": torch.ones(4)}, both)
        assert target.tolist() == [1] * 4 + [0] * 4


def test_checkpoints_are_read_as_tensors(tmp_path) -> None:
    from safetensors.torch import save_file

    tensors = {
        "a": torch.randn(8, 6).to(torch.bfloat16),
        "b": torch.randn(5).to(torch.float8_e4m3fn),
        "c": torch.arange(6).reshape(2, 3),
    }
    (tmp_path / "one").mkdir()
    save_file(tensors, tmp_path / "one" / "model.safetensors")
    rule = {"match": "a", "shard": [{"dim": 0, "axis": "tp"}]}
    layout = sl.Layout.from_mesh({"mesh": {"axes": [["tp", 2]]}, "tensor": [rule]}, tensors)
    sl.convert(tmp_path / "one", tmp_path / "two", to=layout, allow_unproven=True)
    for folder in ["one", "two"]:
        checkpoint = sl.open(tmp_path / folder)
        for name, tensor in checkpoint.state_dict().items():
            assert tensor.dtype == tensors[name].dtype
            assert torch.equal(tensor.view(torch.uint8), tensors[name].view(torch.uint8))
    shards = sl.open(tmp_path / "two").state_dict(rank=1)
    assert torch.equal(shards["a"], tensors["a"][4:]) and torch.equal(shards["c"], tensors["c"])


def meshes(rng: random.Random, size: int) -> list[list]:
    """Meshes over four ranks or fewer, in any order of ranks."""
    shape = rng.choice([(4,), (2, 2), (1, 4), (4, 1), (2, 1, 2), (2, 2, 1), (2,), (3,), (1,)])
    count = 1
    for part in shape:
        count *= part
    ranks = rng.sample(range(size), count)
    return torch.tensor(ranks).reshape(shape).tolist()


def random_placements(rng: random.Random, mesh: list, dims: int) -> list:
    shape = torch.tensor(mesh).shape
    placements = []
    for at in range(len(shape)):
        kind = rng.randrange(4)
        dim = rng.randrange(dims)
        if kind == 0:
            placements.append(Replicate())
        elif kind == 1 and at + 1 < len(shape):
            # As FSDP over TP: split by a later dimension of the mesh first.
            placements.append(_StridedShard(dim, split_factor=shape[at + 1]))
        else:
            placements.append(Shard(dim))
    return placements


def placed(full: torch.Tensor, mesh: DeviceMesh, placements: list) -> DTensor:
    return distribute_tensor(full, mesh, placements, src_data_rank=None)


def check_layout(full: torch.Tensor, tensor: DTensor, rank: int) -> sl.Layout:
    layout = sl.Layout.from_dtensors({"w": tensor})
    local = tensor._local_tensor
    found = torch.full_like(local, -1)
    for box, start in layout.pieces("w", rank):
        into = tuple(slice(s, s + b - a) for s, (a, b) in zip(start, box))
        found[into] = full[tuple(slice(*span) for span in box)]
    assert torch.equal(found, local), (layout.pieces("w", rank), local)
    return layout


def layouts_body(rank: int, size: int, seeds: int) -> list[str]:
    said = []
    for seed in range(seeds):
        rng = random.Random(seed)
        full = torch.arange(float(7 * 10 * 3)).reshape(7, 10, 3)
        source, target = meshes(rng, size), meshes(rng, size)
        # Every rank makes every mesh, also those that it is not in.
        source_mesh, target_mesh = DeviceMesh("cpu", source), DeviceMesh("cpu", target)
        before = random_placements(rng, source, 3)
        after = random_placements(rng, target, 3)
        try:
            tensor = placed(full, source_mesh, before)
            wanted = placed(full, target_mesh, after)
            layout = check_layout(full, tensor, rank)
            check_layout(full, wanted, rank)
            moved = st.redistribute(tensor, target_mesh, after)
            assert moved.shape == full.shape and tuple(moved.placements) == tuple(after)
            assert torch.equal(moved._local_tensor, wanted._local_tensor)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {before} on {source} to {after} on {target}") from error
        said.append(layout.to_json())
    return said


def test_dtensors_move_between_any_meshes() -> None:
    first, *others = run_ranks(4, layouts_body, 40)
    # Nothing is sent: each rank computes the same layouts.
    assert all(other == first for other in others)


def redistribute_body(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    full = torch.randn(9, 8, generator=torch.Generator().manual_seed(5))
    all_placements = [Replicate(), Shard(0), Shard(1)]
    for seed in range(20):
        rng = random.Random(seed)
        before, after = (rng.choices(all_placements, k=2) for _ in range(2))
        tensor = placed(full, mesh, before)
        expected = tensor.redistribute(mesh, after)
        moved = st.redistribute(tensor, mesh, after)
        assert torch.equal(moved.to_local(), expected.to_local()), (seed, before, after)
        assert torch.equal(moved.full_tensor(), full)


def test_it_redistributes_as_torch_does() -> None:
    run_ranks(4, redistribute_body)


class Block(torch.nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.up = torch.nn.Linear(6, 10, bias=True)
        self.down = torch.nn.Linear(10, 6, bias=False)


def model(seed: int) -> torch.nn.Module:
    return torch.nn.ModuleDict({str(layer): Block(seed + layer) for layer in range(2)})


def models_body(rank: int, size: int) -> None:
    trained, served, third = model(1), model(7), model(9)
    full = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    split = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    # FSDP2 over TP, as trainers do; TP alone, as engines do; FSDP2 over all ranks.
    for block in trained.values():
        parallelize_module(block, mesh["tp"], dict(split))
        fully_shard(block, mesh=mesh["dp"])
    line = init_device_mesh("cpu", (4,))
    for block in served.values():
        parallelize_module(block, line, dict(split))
    for block in third.values():
        fully_shard(block, mesh=line)
    for source, target in [(trained, served), (served, third), (third, trained)]:
        stats = st.refit(source.state_dict(), target.state_dict())
        assert stats.bytes_sent + stats.bytes_kept > 0
        for name, tensor in target.state_dict().items():
            assert torch.equal(tensor.full_tensor(), full[name]), name
    # To plain tensors on every rank, with another element type.
    plain = {name: torch.zeros(t.shape, dtype=torch.bfloat16) for name, t in full.items()}
    st.refit(third.state_dict(), plain, convert={"f32": "bf16"})
    assert all(torch.equal(plain[name], full[name].to(torch.bfloat16)) for name in full)


def test_state_dicts_of_fsdp_and_tp_are_refitted() -> None:
    run_ranks(4, models_body)
