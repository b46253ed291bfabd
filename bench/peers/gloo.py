"""The peer of refits between processes: the same transfers, packed, with torch.distributed over gloo.

usage: python3 gloo.py FOLDER ROUNDS

FOLDER holds two layouts (`from.json`, `to.json`) and the transfers between them (`transfers.json`), as `syncline reshard
plan` writes them. As many processes as the plan has PEs move it: for each pair of PEs one buffer, made before the first round
and used in all, packed, sent and unpacked. Receives are posted before anything is packed, a buffer is sent as soon as it
is full, and what stays on a PE is copied while others are under way. Views of all pieces are made once, and each peer's are
copied by one call where torch has it: what is timed has no slicing in it.

Prints one line for each round but the first: milliseconds from a barrier to the one after the last copy. Every element is
compared in the end.
"""

import json
import multiprocessing
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

# Copies do not look at values, and bits compare equal where floats may not.
ELEMENT = torch.int16


def elements(name, shape, spans):
    """The elements of a tensor in this box: which, follows from the tensor's name and their place in it."""
    seed = sum(31 * at + ord(letter) for at, letter in enumerate(name))
    rows, columns = (torch.arange(*span, dtype=torch.int32) for span in spans)
    # Wraps around, twice.
    return ((rows[:, None] * shape[1] + columns + seed) * 40503).to(ELEMENT)


def window(tensor, spans):
    for dim, (start, stop) in enumerate(spans):
        tensor = tensor.narrow(dim, start, stop - start)
    return tensor


def shards(layout, rank, fill):
    """This PE's part of every tensor; zeros unless `fill`."""
    held = {}
    for tensor in layout["tensors"]:
        assert tensor["dtype"] == "bf16", tensor["dtype"]
        for shard in tensor["shards"]:
            if shard["rank"] != rank:
                continue
            part = held[tensor["name"]] = torch.zeros(shard["shape"], dtype=ELEMENT)
            for piece in shard["pieces"] if fill else []:
                spans = piece["global"]
                at = [(start, start + b - a) for start, (a, b) in zip(piece["local"], spans)]
                window(part, at).copy_(elements(tensor["name"], tensor["shape"], spans))
    return held


def copy_all(pairs):
    """A call that copies every source of `pairs` to its target."""
    targets, sources = [target for target, _ in pairs], [source for _, source in pairs]
    at_once = getattr(torch, "_foreach_copy_", None)
    if at_once and targets:
        return lambda: at_once(targets, sources)

    def one_by_one():
        for target, source in zip(targets, sources):
            target.copy_(source)

    return one_by_one


def buffer_of(ops, box, held):
    """A buffer for all of `ops`, and for each its place there beside its place in `held`."""
    places = [window(held[op["tensor"]], op[box]) for op in ops]
    buffer = torch.zeros(sum(place.numel() for place in places), dtype=ELEMENT)
    parts = buffer.split([place.numel() for place in places])
    return buffer, [(part.view(place.shape), place) for part, place in zip(parts, places)]


class Pe:
    def __init__(self, rank, size, before, after, ops):
        self.rank = rank
        self.held, self.received = shards(before, rank, True), shards(after, rank, False)
        others = [(rank + step) % size for step in range(1, size)]
        self.outgoing, self.incoming = [], []
        for peer in others:
            sent = [op for op in ops if op["src"] == rank and op["dst"] == peer]
            if sent:
                buffer, pairs = buffer_of(sent, "src_box", self.held)
                self.outgoing.append((peer, buffer, copy_all(pairs)))
            taken = [op for op in ops if op["src"] == peer and op["dst"] == rank]
            if taken:
                buffer, pairs = buffer_of(taken, "dst_box", self.received)
                unpack = copy_all([(place, part) for part, place in pairs])
                self.incoming.append((peer, buffer, unpack))
        # From the nearest first, as they are sent.
        self.incoming.sort(key=lambda peer: (rank - peer[0]) % size)
        kept = [op for op in ops if op["src"] == rank and op["dst"] == rank]
        self.keep = copy_all(
            [
                (
                    window(self.received[op["tensor"]], op["dst_box"]),
                    window(self.held[op["tensor"]], op["src_box"]),
                )
                for op in kept
            ]
        )

    def move(self):
        arriving = [dist.irecv(buffer, peer) for peer, buffer, _ in self.incoming]
        leaving = []
        for peer, buffer, pack in self.outgoing:
            pack()
            leaving.append(dist.isend(buffer, peer))
        self.keep()
        for work, (_, _, unpack) in zip(arriving, self.incoming):
            work.wait()
            unpack()
        for work in leaving:
            work.wait()

    def check(self, after):
        expected = shards(after, self.rank, True)
        for name, tensor in self.received.items():
            assert torch.equal(tensor, expected[name]), f"`{name}` on PE {self.rank}"


def run(rank, size, folder, rounds, before, after, ops):
    # There are as many processes as PEs already.
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/gloo",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=120),
    )
    pe = Pe(rank, size, before, after, ops)
    # The first round touches all memory, and does not count.
    for number in range(rounds + 1):
        dist.barrier()
        started = time.perf_counter()
        pe.move()
        dist.barrier()
        if rank == 0 and number > 0:
            print((time.perf_counter() - started) * 1e3, flush=True)
    pe.check(after)
    dist.barrier()
    dist.destroy_process_group()


def main():
    folder, rounds = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    before, after, plan = (
        json.loads((folder / f"{name}.json").read_text()) for name in ["from", "to", "transfers"]
    )
    ops = sorted(plan["ops"], key=lambda op: op["id"])
    size = plan["world"]
    # Forked after the import, which takes longer than the rounds, and before torch has any thread.
    context = multiprocessing.get_context("fork")
    told = (size, folder, rounds, before, after, ops)
    pes = [context.Process(target=run, args=(rank, *told), daemon=True) for rank in range(size)]
    for pe in pes:
        pe.start()
    for pe in pes:
        pe.join()
    sys.exit(any(pe.exitcode for pe in pes))


if __name__ == "__main__":
    main()
