"""What a plan says about one element."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

Index = tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """The way of an element to one rank that needs it."""

    src: int
    src_index: Index | None
    dst: int
    dst_index: Index


class Explanation:
    """Where an element comes from and where it goes.

    ``sources`` are the ranks that hold it before, with its place there; ``moves`` has one entry
    for each rank that holds it afterwards.
    """

    def __init__(
        self,
        tensor: str,
        index: Index,
        dtypes: tuple[str, str],
        sources: list[tuple[int, list[int]]],
        moves: list[tuple[int, list[int] | None, int, list[int]]],
    ) -> None:
        self.tensor = tensor
        self.index = tuple(index)
        self.src_dtype, self.dst_dtype = dtypes
        self.sources = [(rank, tuple(place)) for rank, place in sources]
        self.moves = [
            Move(src, None if place is None else tuple(place), dst, tuple(target))
            for src, place, dst, target in moves
        ]

    def __str__(self) -> str:
        change = "" if self.src_dtype == self.dst_dtype else f" as {self.dst_dtype}"
        lines = [f"{self.tensor}{list(self.index)} of {self.src_dtype}"]
        lines += [f"  rank {rank} holds it at {list(place)}" for rank, place in self.sources]
        for move in self.moves:
            way = "keeps it" if move.src == move.dst else f"gets it from rank {move.src}"
            lines.append(f"  rank {move.dst} {way}{change}, at {list(move.dst_index)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Explanation: {self}>"


#: Ranks that a table has room for.
_RANKS_MAX = 32


def plan_html(title: str, world: int, pairs: Sequence[tuple[int, int, int]]) -> str:
    """Returns a table of the bytes that each rank sends to each other one."""
    head = f"<p><code>{html.escape(title)}</code></p>"
    if world > _RANKS_MAX:
        return f"{head}<p>{len(pairs)} pairs of ranks exchange bytes</p>"
    moved = {(src, dst): count for src, dst, count in pairs}
    most = max(moved.values(), default=1)

    def cell(src: int, dst: int) -> str:
        count = moved.get((src, dst), 0)
        shade = f"background:rgba(70,130,180,{count / most:.2f})"
        return f'<td style="{shade};text-align:right">{count or ""}</td>'

    names = "".join(f"<th>to {rank}</th>" for rank in range(world))
    rows = "".join(
        f"<tr><th>from {src}</th>{''.join(cell(src, dst) for dst in range(world))}</tr>"
        for src in range(world)
    )
    return f"{head}<table><tr><th></th>{names}</tr>{rows}</table>"
