"""The conversions of `checkpoint` as people write them: safetensors, and slices of numpy arrays.

Prints the seconds from the first read to the last byte on disk; starting Python and importing is not counted.
"""
import glob
import json
import os
import sys
import time

import numpy
from safetensors import safe_open
from safetensors.numpy import save_file

ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head")
COLUMNS = ("o_proj", "down_proj")


def axis_of(name):
    if any(part in name for part in ROWS):
        return 0
    return 1 if any(part in name for part in COLUMNS) else None


def save(tensors, path):
    save_file(tensors, path, metadata={"format": "pt"})
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def whole_to_ranks(source, target, ranks):
    files = [safe_open(path, framework="np") for path in sorted(glob.glob(source + "/*.safetensors"))]
    for rank in range(ranks):
        tensors = {}
        for file in files:
            for name in file.keys():
                part, axis = file.get_slice(name), axis_of(name)
                size = part.get_shape()
                if axis is None:
                    tensors[name] = file.get_tensor(name)
                    continue
                first, last = rank * size[axis] // ranks, (rank + 1) * size[axis] // ranks
                tensors[name] = part[first:last] if axis == 0 else numpy.ascontiguousarray(part[:, first:last])
        save(tensors, f"{target}/rank-{rank:05}.safetensors")


def join(files, name):
    axis = axis_of(name)
    if axis is None:
        return files[0].get_tensor(name)
    return numpy.concatenate([file.get_tensor(name) for file in files], axis=axis)


def four_to_stages(source, target, layers):
    files = [safe_open(f"{source}/rank-{rank:05}.safetensors", framework="np") for rank in range(4)]
    for stage in range(2):
        for half in range(2):
            tensors = {}
            for name in files[0].keys():
                parts = name.split(".")
                if "layers" in parts:
                    at = int(parts[parts.index("layers") + 1]) * 2 // layers
                else:
                    at = 0 if "embed_tokens" in name else 1
                if at == stage:
                    tensors[name] = join(files[2 * half:2 * half + 2], name)
            save(tensors, f"{target}/rank-{stage * 2 + half:05}.safetensors")


def two_to_whole(source, target):
    files = [safe_open(f"{source}/rank-{rank:05}.safetensors", framework="np") for rank in range(2)]
    tensors, size, shards, weights = {}, 0, 0, {}
    names = list(files[0].keys())
    for at, name in enumerate(names):
        tensors[name] = join(files, name)
        size += tensors[name].nbytes
        if size >= 1 << 30 or at + 1 == len(names):
            path = f"model-{shards + 1:05}.safetensors"
            save(tensors, f"{target}/{path}")
            weights |= {name: path for name in tensors}
            tensors, size, shards = {}, 0, shards + 1
    with open(target + "/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {}, "weight_map": weights}, file)


what, source, target, layers = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
os.mkdir(target)
start = time.perf_counter()
if what == "hf-tp4":
    whole_to_ranks(source, target, 4)
elif what == "tp4-tp2pp2":
    four_to_stages(source, target, layers)
else:
    two_to_whole(source, target)
print(time.perf_counter() - start)
