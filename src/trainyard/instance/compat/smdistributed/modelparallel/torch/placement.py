"""Which ranks hold which part of the model: a grid of data, pipeline and tensor parallelism over the ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

PIPELINE, TENSOR, DATA, REDUCED_DATA, MODEL = "pp", "tp", "dp", "rdp", "mp"

# The coordinates that differ between the ranks of a group, by kind.
_VARYING: Mapping[str, str] = {PIPELINE: "P", TENSOR: "T", REDUCED_DATA: "D", DATA: "DT", MODEL: "PT"}


@dataclass(frozen=True, slots=True)
class Grid:
    """The ranks, numbered along the letters of `order`: the last letter varies fastest.

    D stands for replicas of the same shard, P for stages of the pipeline, T for shards of a layer.
    """

    size: int
    pipeline: int
    tensor: int
    order: str = "DPT"
    lengths: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        parts = self.pipeline * self.tensor
        if self.size % parts:
            raise ValueError(
                f"{self.size} ranks cannot be divided into {self.pipeline} partitions of {self.tensor} tensor parallel "
                f"ranks each; start a multiple of {parts}."
            )
        object.__setattr__(self, "lengths", {"D": self.size // parts, "P": self.pipeline, "T": self.tensor})

    def groups(self, kind: str) -> list[list[int]]:
        """Return all groups of a kind, each with its ranks in ascending order."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, at in enumerate(self._coordinates()):
            fixed = tuple(at[letter] for letter in "DPT" if letter not in _VARYING[kind])
            groups.setdefault(fixed, []).append(rank)
        return list(groups.values())

    def group(self, kind: str, rank: int) -> list[int]:
        """Return the ranks of this rank's group of a kind."""
        return next(group for group in self.groups(kind) if rank in group)

    def index(self, kind: str, rank: int) -> int:
        """Return the index of a rank in its group of a kind."""
        return self.group(kind, rank).index(rank)

    def _coordinates(self) -> list[dict[str, int]]:
        ranges = [range(self.lengths[letter]) for letter in self.order]
        return [dict(zip(self.order, at, strict=True)) for at in product(*ranges)]
