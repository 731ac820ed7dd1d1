"""What is saved of a tensor in place of its values."""

from dataclasses import dataclass
from typing import Self

from trainyard.foundation.errors import InvalidRequest

REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod")
NORMS = ("l1", "l2")
_UNDERIVABLE = {"prod", "abs_prod", "abs_min"}  # every other follows from the statistics that each step has anyway


@dataclass(frozen=True, slots=True)
class ReductionConfig:
    """The reductions that are asked for, and whether the values are saved as well.

    All but `extras` can be computed from the statistics of a tensor.
    """

    reductions: frozenset[str] = frozenset()
    abs_reductions: frozenset[str] = frozenset()
    norms: frozenset[str] = frozenset()
    abs_norms: frozenset[str] = frozenset()
    save_raw_tensor: bool = False
    save_shape: bool = False

    @property
    def extras(self) -> frozenset[str]:
        """Those that need the values: prod, abs_prod, abs_min."""
        return (self.reductions | {f"abs_{word}" for word in self.abs_reductions}) & _UNDERIVABLE

    @classmethod
    def parse(cls, words: str, *, save_raw_tensor: bool = False, save_shape: bool = False) -> Self:
        """From AWS's form, such as "min,abs_mean,l2_norm,abs_l1_norm"."""
        found: dict[str, set[str]] = {"reductions": set(), "abs_reductions": set(), "norms": set(), "abs_norms": set()}
        for word in (part.strip() for part in words.split(",")):
            if word:
                place, name = _placed(word)
                found[place].add(name)
        sets = {place: frozenset(names) for place, names in found.items()}
        return cls(**sets, save_raw_tensor=save_raw_tensor, save_shape=save_shape)


RAW = ReductionConfig(save_raw_tensor=True)  # what holds where nobody says anything


def _placed(word: str) -> tuple[str, str]:
    prefix = "abs_" if word.startswith("abs_") else ""
    name = word.removeprefix(prefix)
    if name in REDUCTIONS:
        return f"{prefix}reductions", name
    if name.removesuffix("_norm") in NORMS:
        return f"{prefix}norms", name.removesuffix("_norm")
    known = ", ".join((*REDUCTIONS, *(f"{norm}_norm" for norm in NORMS)))
    raise InvalidRequest(f'There is no reduction "{word}". There are {known}, each also with "abs_" before it.')
