"""Checks the formats of checkpoints against torch itself.

Random state dicts are saved by torch.save, torch.distributed.checkpoint and megatron-core; `syncline reshard
run` turns each into safetensors, which have to hold what was saved, element by element.

Usage: check.py SYNCLINE FOLDER
"""

import collections
import os
import random
import shutil
import subprocess
import sys
import warnings
import zipfile

warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
]
# Types that the Hugging Face writer of torch.distributed.checkpoint knows.
PLAIN = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32]
ROUNDS = 6
# Each starts processes.
MEGATRON_ROUNDS = 2
RANKS = 2


def whole(rng, dtype, shape):
    count = 1
    for size in shape:
        count *= size
    bits = torch.tensor([rng.randrange(256) for _ in range(count * dtype.itemsize)], dtype=torch.uint8)
    if dtype == torch.bool:
        bits = bits % 2
    return bits.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def view(rng, tensor):
    """A random view of a tensor, in most cases with strides of its own."""
    for _ in range(rng.randrange(3)):
        kind = rng.randrange(4)
        if kind == 0 and tensor.dim() > 1:
            tensor = tensor.transpose(*rng.sample(range(tensor.dim()), 2))
        elif kind == 1 and tensor.dim():
            dim = rng.randrange(tensor.dim())
            start = rng.randrange(tensor.shape[dim] + 1)
            tensor = tensor.narrow(dim, start, rng.randrange(tensor.shape[dim] - start + 1))
        elif kind == 2 and tensor.dim():
            step = [slice(None)] * tensor.dim()
            step[rng.randrange(tensor.dim())] = slice(rng.randrange(2), None, rng.choice([2, 3]))
            tensor = tensor[tuple(step)]
        elif kind == 3 and tensor.dim() < 4:
            tensor = tensor.unsqueeze(0).expand(rng.randrange(1, 4), *tensor.shape)
    return tensor


def random_shape(rng, least=0):
    return [rng.randrange(least, 7) for _ in range(rng.randrange(4))]


def random_state(rng):
    state, bases = collections.OrderedDict(), []
    for at in range(rng.randrange(1, 12)):
        if not bases or rng.random() < 0.6:
            bases.append(whole(rng, rng.choice(DTYPES), random_shape(rng)))
        tensor = view(rng, rng.choice(bases))
        if tensor.is_floating_point() and rng.random() < 0.2:
            tensor = torch.nn.Parameter(tensor)
        state[f"layer.{at}.weight"] = tensor
    return state


def same(found, expected):
    # Copies: one element may have any stride and still count as contiguous.
    found, expected = (torch.empty(of.shape, dtype=of.dtype).copy_(of.detach()) for of in (found, expected))
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    bits = lambda tensor: tensor.reshape(-1).view(torch.uint8)
    return found.numel() == 0 or torch.equal(bits(found), bits(expected))


def syncline(*arguments):
    run = subprocess.run([PROGRAM, "reshard", *arguments], capture_output=True, text=True)
    assert run.returncode == 0, f"{arguments}: {run.stdout}{run.stderr}"
    return run.stdout


def check(what, source, folder, expected, *more):
    target = os.path.join(folder, "out")
    shutil.rmtree(target, ignore_errors=True)
    syncline("run", source, target, "--to", "hf", *more)
    found = load_file(os.path.join(target, "model.safetensors"))
    assert sorted(found) == sorted(expected), f"{what}: {sorted(found)} for {sorted(expected)}"
    for name, tensor in expected.items():
        assert same(found[name], tensor), f"{what}: {name}: {found[name]} for {tensor}"
    syncline("verify", source, target, *more)


def check_written(what, source, folder, expected):
    """A directory of torch.distributed.checkpoint that the program wrote, as torch reads it."""
    target = os.path.join(folder, "written")
    shutil.rmtree(target, ignore_errors=True)
    syncline("run", source, target, "--to", "dcp", "--file-bytes", "200")
    syncline("verify", source, target)
    found = {name: torch.zeros_like(tensor.detach().contiguous()) for name, tensor in expected.items()}
    dcp.load(found, checkpoint_id=target, no_dist=True)
    for name, tensor in expected.items():
        assert same(found[name], tensor), f"{what}: {name}: {found[name]} for {tensor}"
    state = os.path.join(folder, "all.pt")
    dcp_to_torch_save(target, state)
    for name, tensor in torch.load(state).items():
        assert same(tensor, expected[name]), f"{what}: {name}"


def check_ranks(folder):
    """Files of ranks as torch and zip tools read them."""
    rng = random.Random(5)
    state = {f"layers.{at}.weight": whole(rng, dtype, [4, 6]) for at, dtype in enumerate(DTYPES)}
    source, target, layout = (os.path.join(folder, name) for name in ("ranks.pt", "ranks", "ranks.toml"))
    torch.save(state, source)
    with open(layout, "w") as file:
        file.write('[mesh]\naxes = [["tp", 2]]\n[[tensor]]\nmatch = "layers.{0..5}.weight"\nshard = [{dim = 0, axis = "tp"}]\n'
                   '[[tensor]]\nmatch = "layers.*.weight"\nshard = [{dim = 1, axis = "tp"}]\n')
    shutil.rmtree(target, ignore_errors=True)
    syncline("run", source, target, "--to", layout, "--rank-files", "megatron", "--allow-unproven")
    for rank in range(2):
        path = os.path.join(target, f"mp_rank_{rank:02d}", "model_optim_rng.pt")
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None, "a checksum is wrong"
        found = torch.load(path)
        assert found["checkpoint_version"] == 3.0
        for at, (name, tensor) in enumerate(state.items()):
            part = tensor.view(torch.uint8).chunk(2, 0)[rank] if at < 6 else tensor.view(torch.uint8).chunk(2, 1)[rank]
            assert same(found["model"][name], part.contiguous().view(tensor.dtype)), name
    print("files of ranks: torch.load and checksums")


def saved_by_torch(folder):
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        state, path = random_state(rng), os.path.join(folder, "state.pt")
        new = rng.random() < 0.7
        # The format before 1.6 has no storages of newer types.
        if not new:
            state = collections.OrderedDict((k, v) for k, v in state.items() if v.dtype in DTYPES[:9])
        if not state:
            continue
        torch.save(state, path, _use_new_zipfile_serialization=new)
        check(f"torch.save {seed} {new}", path, folder, state)
        check_written(f"dcp of torch.save {seed}", path, folder, state)
        nested = {"model": state, "step": seed, "args": {"lr": 0.1}, "extra": [state]}
        torch.save(nested, path, _use_new_zipfile_serialization=new)
        check(f"nested {seed}", path, folder, state, "--prefix", "model")
    print(f"torch.save: {ROUNDS} state dicts")


def distributed(rank, port, folder, program):
    global PROGRAM
    PROGRAM = program
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"tcp://127.0.0.1:{port}")
    mesh = init_device_mesh("cpu", (RANKS,))
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        state, expected, plain = {}, {}, {}
        for at in range(rng.randrange(1, 8)):
            tensor = whole(rng, rng.choice(PLAIN), random_shape(rng, 1))
            dim = rng.randrange(-1, tensor.dim())
            place = Replicate() if dim < 0 else Shard(dim)
            name = f"block.{at}"
            state[name] = distribute_tensor(tensor, mesh, [place])
            # Bits are compared: scattering must not change them.
            expected[name] = state[name].full_tensor()
            plain[name] = state[name]
        path = os.path.join(folder, "dcp")
        if rank == 0:
            shutil.rmtree(path, ignore_errors=True)
            shutil.rmtree(path + "-hf", ignore_errors=True)
        dist.barrier()
        dcp.save({"model": state, "step": seed}, checkpoint_id=path)
        # The Hugging Face writer has no scalars.
        hf = {name: tensor for name, tensor in plain.items() if tensor.dim()}
        if hf:
            dcp.save(hf, storage_writer=HuggingFaceStorageWriter(path=path + "-hf", save_distributed=True))
        if rank == 0:
            check(f"dcp {seed}", path, folder, expected, "--prefix", "model")
            if hf:
                check(f"dcp safetensors {seed}", path + "-hf", folder, {name: expected[name] for name in hf})
        dist.barrier()
    if rank == 0:
        print(f"torch.distributed.checkpoint: {ROUNDS} state dicts of {RANKS} ranks")
    megatron(rank, folder)
    dist.destroy_process_group()


def megatron(rank, folder):
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing import ShardedTensor

    # There is no GPU to wait for, and none that counts failures.
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=RANKS)
    for seed in range(MEGATRON_ROUNDS):
        rng = random.Random(seed)
        sharded, expected = {}, {}
        for at in range(rng.randrange(1, 6)):
            shape = [RANKS * rng.randrange(1, 4), rng.randrange(1, 6)]
            tensor = whole(rng, rng.choice(PLAIN), shape)
            name = f"decoder.layers.{at}.weight"
            part = tensor.chunk(RANKS)[rank].contiguous()
            sharded[name] = ShardedTensor.from_rank_offsets(name, part, (0, rank, RANKS))
            expected[name] = tensor
        sharded["step"] = seed
        path = os.path.join(folder, "megatron")
        if rank == 0:
            shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path)
        dist.barrier()
        dist_checkpointing.save(sharded, path)
        if rank == 0:
            check(f"megatron {seed}", path, folder, expected)
        dist.barrier()
    if rank == 0:
        print(f"megatron-core torch_dist: {MEGATRON_ROUNDS} state dicts of {RANKS} ranks")


def main():
    os.makedirs(sys.argv[2], exist_ok=True)
    saved_by_torch(sys.argv[2])
    check_ranks(sys.argv[2])
    port = random.SystemRandom().randrange(20000, 60000)
    mp.spawn(distributed, args=(port, sys.argv[2], PROGRAM), nprocs=RANKS)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv[1])
    main()
