"""What a plan says about one element."""

from __future__ import annotations

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
