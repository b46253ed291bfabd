"""Checkpoints, written and read again by the safetensors package."""

from __future__ import annotations

import json
import random
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import syncline as sl

HIDDEN, HEADS, LAYERS, VOCABULARY = 16, 4, 2, 24


def llama(folder: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """Writes a tiny model with random weights and returns these."""
    numbers = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for part in "qkvo":
            shapes[f"{at}.self_attn.{part}_proj.weight"] = (HIDDEN, HIDDEN)
        shapes[f"{at}.mlp.gate_proj.weight"] = (2 * HIDDEN, HIDDEN)
        shapes[f"{at}.mlp.up_proj.weight"] = (2 * HIDDEN, HIDDEN)
        shapes[f"{at}.mlp.down_proj.weight"] = (HIDDEN, 2 * HIDDEN)
        shapes[f"{at}.input_layernorm.weight"] = (HIDDEN,)
        shapes[f"{at}.post_attention_layernorm.weight"] = (HIDDEN,)
    shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    tensors = {
        name: numbers.standard_normal(shape, np.float32) for name, shape in shapes.items()
    }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "num_hidden_layers": LAYERS,
        "intermediate_size": 2 * HIDDEN, "vocab_size": VOCABULARY,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return tensors


def test_a_checkpoint_goes_to_ranks_and_back(tmp_path: Path) -> None:
    tensors = llama(tmp_path / "hf")
    calls: list[tuple[int, int]] = []
    summary = sl.convert(
        tmp_path / "hf", tmp_path / "ranks", to="tp=2,pp=2", progress=lambda *a: calls.append(a)
    )
    assert summary.tensors == len(tensors) and summary.files == 4 and summary.files_kept == 0
    assert calls[-1] == (summary.bytes, summary.bytes)
    # Rank 1 has the second half of the heads of the first layer.
    local = load_file(tmp_path / "ranks" / "rank-00001.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    assert np.array_equal(local[name], tensors[name][HIDDEN // 2 :])

    sharded = sl.open(tmp_path / "ranks")
    assert sharded.format == "sharded" and sharded.layout.world == 4
    assert set(sharded) == set(tensors)
    for name, expected in tensors.items():
        assert np.array_equal(sharded[name][...], expected)
    assert sl.verify(tmp_path / "hf", tmp_path / "ranks").same

    sl.convert(tmp_path / "ranks", tmp_path / "again", to="hf")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(np.array_equal(again[name], tensors[name]) for name in tensors)


def test_differences_are_found(tmp_path: Path) -> None:
    tensors = llama(tmp_path / "a")
    sl.convert(tmp_path / "a", tmp_path / "b", to="tp=2")
    path = tmp_path / "b" / "rank-00001.safetensors"
    local = load_file(path)
    local["lm_head.weight"][3, 5] += 1
    save_file(local, path)
    report = sl.verify(tmp_path / "a", tmp_path / "b")
    assert not report.same and not report
    (one,) = report.differences
    assert (one.tensor, one.rank, one.element) == ("lm_head.weight", 1, 3 * HIDDEN + 5)
    del tensors["lm_head.weight"]
    (tmp_path / "c").mkdir()
    save_file(tensors, tmp_path / "c" / "model.safetensors")
    other = sl.verify(tmp_path / "a", tmp_path / "c")
    assert not other.same and "lm_head" in str(other.differences[0])


def random_index(rng: random.Random, shape: tuple[int, ...]):
    def one(size: int):
        kind = rng.randrange(4)
        if kind == 0 and size:
            return rng.randrange(-size, size)
        step = rng.choice([None, 1, 2, 3, -1, -2])
        ends = [rng.choice([None, rng.randint(-size - 2, size + 2)]) for _ in range(2)]
        return slice(*ends, step)

    first = [one(size) for size in shape[: rng.randint(0, len(shape))]]
    if rng.random() < 0.7:
        return tuple(first)
    rest = shape[len(first) :]
    return (*first, ..., *(one(size) for size in rest[rng.randint(0, len(rest)) :]))


def test_slices_are_those_of_numpy(tmp_path: Path, rng: random.Random) -> None:
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    kinds = [np.float32, np.int64, np.uint8, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
    tensors = {}
    for at, kind in enumerate(kinds):
        shape = tuple(rng.randint(1, 6) for _ in range(rng.randint(1, 4)))
        bits = numbers.integers(0, 256, (*shape, np.dtype(kind).itemsize), np.uint8)
        tensors[f"t{at}"] = bits.view(kind).reshape(shape)
    plain = tmp_path / "plain"
    plain.mkdir()
    named = {np.dtype(ml_dtypes.bfloat16): "BF16", np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3"}
    write_safetensors(plain / "model.safetensors", tensors, named)
    rules = [
        {"match": name, "shard": [{"dim": rng.randrange(t.ndim), "axis": "tp"}]}
        for name, t in tensors.items()
    ]
    mesh = {"mesh": {"axes": [["tp", 2]]}, "tensor": rules}
    specs = {name: (t.dtype, t.shape) for name, t in tensors.items()}
    sl.convert(plain, tmp_path / "ranks", to=sl.Layout.from_mesh(mesh, specs), allow_unproven=True)
    for path in [plain, plain / "model.safetensors", tmp_path / "ranks"]:
        checkpoint = sl.open(path)
        for name, expected in tensors.items():
            held = checkpoint[name]
            assert held.shape == expected.shape and held.nbytes == expected.nbytes
            for _ in range(30):
                index = random_index(rng, expected.shape)
                got, want = held[index], expected[index]
                assert got.dtype == want.dtype and got.shape == want.shape
                assert got.tobytes() == want.tobytes(), (name, index)
            fancy = np.array([0, expected.shape[0] - 1, 0])
            assert held[fancy].tobytes() == expected[fancy].tobytes()
        held = checkpoint["t0"][...]
        held[...] = 0  # What was read is the caller's own.
        assert checkpoint["t0"][...].tobytes() == tensors["t0"].tobytes()


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], named: dict) -> None:
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = named.get(tensor.dtype) or f"{tensor.dtype.kind.upper()}{8 * tensor.itemsize}"
        start, data = len(data), data + tensor.tobytes()
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_a_checkpoint_is_a_mapping(tmp_path: Path) -> None:
    tensors = llama(tmp_path / "hf")
    checkpoint = sl.open(str(tmp_path / "hf"))
    assert len(checkpoint) == len(tensors) and "lm_head.weight" in checkpoint
    assert "nothing" not in checkpoint and checkpoint.get("nothing") is None
    assert dict(checkpoint.items()).keys() == tensors.keys()
    assert checkpoint.metadata == {"format": "pt"} and checkpoint.format == "safetensors"
    assert checkpoint["lm_head.weight"].dtype == "f32"
    assert np.asarray(checkpoint["lm_head.weight"]).sum() == tensors["lm_head.weight"].sum()
    with pytest.raises(KeyError, match="did you mean `lm_head.weight`"):
        checkpoint["lm_heat.weight"]
    with pytest.raises(IndexError):
        checkpoint["lm_head.weight"][VOCABULARY]
    assert sl.Layout.from_checkpoint(tmp_path / "hf") == checkpoint.layout


def test_bad_checkpoints_and_targets_are_refused(tmp_path: Path) -> None:
    llama(tmp_path / "hf")
    with pytest.raises(sl.CheckpointError, match="no checkpoint"):
        sl.open(tmp_path)
    (tmp_path / "cut").mkdir()
    whole = (tmp_path / "hf" / "model.safetensors").read_bytes()
    (tmp_path / "cut" / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(sl.CheckpointError):
        sl.open(tmp_path / "cut")
    for to in ["tp=5", "pp=9", "xy=2", "tp=0", "nonsense"]:
        with pytest.raises(sl.CheckpointError):
            sl.convert(tmp_path / "hf", tmp_path / "out", to=to)
        assert not (tmp_path / "out").exists()
    with pytest.raises(sl.SynclineError, match="f33"):
        sl.convert(tmp_path / "hf", tmp_path / "out", to="tp=2", dtype="f33")
    sl.convert(tmp_path / "hf", tmp_path / "out", to="tp=2", dtype="bfloat16")
    assert sl.open(tmp_path / "out")["lm_head.weight"].dtype == "bf16"
    with pytest.raises(sl.CheckpointError, match="already exists"):
        sl.convert(tmp_path / "hf", tmp_path / "out", to="tp=2")


def test_an_error_of_progress_surfaces_as_itself(tmp_path: Path) -> None:
    llama(tmp_path / "hf")

    class Mine(Exception):
        pass

    def fail(done: int, total: int) -> None:
        raise Mine(f"{done} of {total}")

    with pytest.raises(Mine) as caught:
        sl.convert(tmp_path / "hf", tmp_path / "out", to="tp=2", progress=fail)
    assert caught.traceback[-1].name == "fail"
    with pytest.raises(sl.SynclineError, match="progress"):
        sl.convert(tmp_path / "hf", tmp_path / "other", to="tp=2", progress=3)
