"""vLLM itself: updates from sharded trainers.

An engine is a process that serves calls of rank 0 of the trainer; the trainer's ranks are processes
of their own. What decides are the tokens of an engine that was started with the same weights.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import tempfile
import threading
import time
import traceback
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

SPAWN = multiprocessing.get_context("spawn")
PROMPTS = [[1, 5, 9, 20], [7, 3], [100, 50, 25, 12, 6]]
TOKENS = 12


def model(seed: int, dtype: torch.dtype, tie: bool = False) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, vocab_size=200, max_position_embeddings=128,
        tie_word_embeddings=tie, initializer_range=0.2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).to(dtype).eval()


def engine_options(folder: Path, tp: int, dtype: str) -> dict[str, Any]:
    return {
        "model": str(folder), "skip_tokenizer_init": True, "enforce_eager": True,
        "max_model_len": 64, "tensor_parallel_size": tp, "dtype": dtype,
        "gpu_memory_utilization": 0.2, "enable_prefix_caching": False,
        "weight_transfer_config": {"backend": "syncline"},
    }  # fmt: skip


def generate(llm: Any) -> list[list[int]]:
    from vllm import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=TOKENS, detokenize=False, ignore_eos=True)
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    done = llm.generate(prompts, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in done]


def serve(options: dict[str, Any], calls: Any, answers: Any) -> None:
    """The process of an engine: does what it is asked, one after the other."""
    if options["tensor_parallel_size"] > 1:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"
    try:
        from vllm import LLM

        llm = LLM(**options)
        answers.put((True, None))
        while (call := calls.get()) is not None:
            name, arguments = call
            try:
                done = generate(llm) if name == "generate" else getattr(llm, name)(*arguments)
                answers.put((True, done if name == "generate" else None))
            except Exception:
                answers.put((False, traceback.format_exc()))
    except BaseException:
        answers.put((False, traceback.format_exc()))


class Served:
    """An engine in a process of its own, with the calls that a trainer makes."""

    def __init__(self, folder: Path, tp: int = 1, dtype: str = "float32") -> None:
        self.calls, self.answers = SPAWN.Queue(), SPAWN.Queue()
        options = engine_options(folder, tp, dtype)
        # Engines with several ranks have processes of their own, which daemons may not have.
        self.process = SPAWN.Process(target=serve, args=(options, self.calls, self.answers))
        self.process.start()
        self.answer()

    def answer(self) -> Any:
        is_well, answer = self.answers.get(timeout=400)
        assert is_well, answer
        return answer

    def call(self, name: str, *arguments: Any) -> Any:
        self.calls.put((name, arguments))
        return self.answer()

    def generate(self) -> list[list[int]]:
        return self.call("generate")

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.call("init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        self.call("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self.call("update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.call("finish_weight_update", *([weight_version] if weight_version else []))

    def close(self) -> None:
        self.calls.put(None)
        self.process.join(timeout=60)
        if self.process.is_alive():
            self.process.kill()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def sharded(seed: int, kind: str, size: int, dtype: torch.dtype) -> Any:
    """The trainer's model of a seed, sharded as trainers do."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    trained = model(seed, dtype)
    mesh = init_device_mesh("cpu", (size,))
    for layer in trained.model.layers:
        if kind == "fsdp":
            fully_shard(layer, mesh=mesh)
        if kind == "tp":
            split = {name: ColwiseParallel() for name in ("q_proj", "k_proj", "v_proj")}
            parallelize_module(layer.self_attn, mesh, {**split, "o_proj": RowwiseParallel()})
            split = {name: ColwiseParallel() for name in ("gate_proj", "up_proj")}
            parallelize_module(layer.mlp, mesh, {**split, "down_proj": RowwiseParallel()})
    if kind == "fsdp":
        fully_shard(trained, mesh=mesh)
    return trained


def collect(ranks: list[Any], out: Any) -> list[Any]:
    """What each process puts, unless one dies or all take too long."""
    ended: list[Any] = []
    until = time.monotonic() + 600
    while len(ended) < len(ranks) and time.monotonic() < until:
        try:
            ended.append(out.get(timeout=1))
        except queue.Empty:
            if any(rank.exitcode for rank in ranks):
                break
    for rank in ranks:
        rank.join(timeout=20 if len(ended) == len(ranks) else 0)
        rank.kill()
    assert len(ended) == len(ranks), [rank.exitcode for rank in ranks]
    return ended


class Remote:
    """The engine as rank 0 of the trainer sees it: its calls are made by the test's process."""

    def __init__(self, calls: Any, answers: Any) -> None:
        self.calls, self.answers = calls, answers

    def call(self, name: str, *arguments: Any) -> None:
        self.calls.put((name, arguments))
        error = self.answers.get(timeout=400)
        if error is not None:
            raise RuntimeError(error)

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.call("init_weight_transfer_engine", init_info)

    def start_weight_update(self) -> None:
        self.call("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self.call("update_weights", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.call("finish_weight_update", weight_version)

    def generate(self) -> None:
        self.call("generate")


def train(
    rank: int, size: int, meeting: str, job: dict[str, Any], remote: Remote, out: Any
) -> None:
    """A rank of the trainer: sends the models of all seeds, one after the other."""
    import torch.distributed as dist

    from syncline.vllm import ShardedSource, Trainer, TrainerInfo

    try:
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
        dtype = getattr(torch, job["dtype"])
        trained = sharded(job["seeds"][0], job["kind"], size, dtype)
        source = ShardedSource(trained)
        info = TrainerInfo(
            rank=rank, trainers=size, workers=job["workers"],
            address=f"shm:vllm-{job['name']}", timeout=200,
        )  # fmt: skip
        trainer = Trainer.trainer_init(info, client=remote, source=source)
        for seed in job["seeds"]:
            with torch.no_grad():
                fresh = sharded(seed, job["kind"], size, dtype)
                for into, value in zip(trained.parameters(), fresh.parameters()):
                    into.copy_(value)
            trainer.send_weights()
            if rank == 0:
                remote.generate()
        out.put((rank, None, trainer.route.whole))
        trainer.shutdown()
    except BaseException:
        out.put((rank, traceback.format_exc(), None))


def update(engine: Served, kind: str, size: int, tp: int, seeds: list[int], dtype: str) -> Any:
    """Runs a trainer against an engine; returns the tokens after each update and what is whole."""
    calls, answers, out = SPAWN.Queue(), SPAWN.Queue(), SPAWN.Queue()
    tokens: list[Any] = []
    job = {"kind": kind, "seeds": seeds, "dtype": dtype, "workers": tp, "name": uuid.uuid4().hex}
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        ranks = [
            SPAWN.Process(
                target=train, daemon=True,
                args=(rank, size, meeting, job, Remote(calls, answers), out),
            )  # fmt: skip
            for rank in range(size)
        ]
        for rank in ranks:
            rank.start()

        def relay() -> None:
            while (call := calls.get()) is not None:
                name, arguments = call
                try:
                    done = getattr(engine, name)(*arguments)
                    if name == "generate":
                        tokens.append(done)
                    answers.put(None)
                except BaseException:
                    answers.put(traceback.format_exc())

        relaying = threading.Thread(target=relay, daemon=True)
        relaying.start()
        ended = collect(ranks, out)
        calls.put(None)
    errors = [error for _, error, _ in ended if error]
    assert not errors, "\n".join(errors)
    return tokens, dict((rank, said) for rank, _, said in ended)


def expected_tokens(trained: Any) -> list[list[int]]:
    """What transformers generates: an oracle that shares nothing with vLLM."""
    found = []
    for prompt in PROMPTS:
        with torch.no_grad():
            done = trained.generate(
                torch.tensor([prompt]), max_new_tokens=TOKENS, min_new_tokens=TOKENS,
                do_sample=False, pad_token_id=0, eos_token_id=None,
            )  # fmt: skip
        found.append(done[0, len(prompt) :].tolist())
    return found


@pytest.mark.parametrize(
    ("tp", "kind", "size", "dtype"),
    [(1, "fsdp", 2, "float32"), (2, "tp", 2, "bfloat16")],
)
def test_an_engine_computes_with_the_trainers_weights(
    tmp_path: Path, tp: int, kind: str, size: int, dtype: str
) -> None:
    kept = getattr(torch, dtype)
    model(1, kept).save_pretrained(tmp_path / "a")
    model(2, kept).save_pretrained(tmp_path / "b")
    seeds = [2, *range(3, 8), 2]
    with Served(tmp_path / "a", tp, dtype) as engine:
        before = engine.generate()
        after, said = update(engine, kind, size, tp, seeds, dtype)
    assert all(whole == [] for whole in said.values())
    assert len(after) == len(seeds) and after[0] == after[-1] != before
    assert len({str(tokens) for tokens in after}) == len(seeds) - 1
    if dtype == "float32":
        for seed, tokens in zip(seeds, after):
            assert tokens == expected_tokens(model(seed, kept)), seed
    with Served(tmp_path / "b", tp, dtype) as engine:
        assert engine.generate() == after[0]
