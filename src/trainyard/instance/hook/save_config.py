"""When tensors are saved, and what of them: SaveConfig and ReductionConfig.

A SaveConfig selects steps of each mode by an interval, a range and a list. A ReductionConfig lists the reductions to
save in place of a tensor's values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from trainyard.formats.tensors.contract import Mode
from trainyard.foundation.errors import InvalidRequest

# AWS's default for every framework except XGBoost.
DEFAULT_INTERVAL = 500


@dataclass(frozen=True, slots=True)
class SaveSchedule:
    """The steps to save in one mode: those listed, and every `interval`-th from `start` up to but excluding `end`."""

    interval: int = DEFAULT_INTERVAL
    start: int = 0
    end: int | None = None
    steps: frozenset[int] = frozenset()

    def has(self, mode_step: int) -> bool:
        if mode_step in self.steps:
            return True
        is_within = self.start <= mode_step and (self.end is None or mode_step < self.end)
        return is_within and mode_step % self.interval == 0

    def with_parameters(self, parameters: Mapping[str, object]) -> Self:
        """Return a copy with AWS's parameters applied; their values may be strings."""
        given = {word: value for word, value in parameters.items() if value not in (None, "", "None")}
        interval = _number("save_interval", given.get("save_interval", self.interval))
        if interval == 0:
            raise InvalidRequest('A save interval is 0. Set "save_interval" to 1 or more, or leave it out.')
        return replace(
            self,
            interval=interval,
            start=_number("start_step", given.get("start_step", self.start)),
            end=_number("end_step", given["end_step"]) if "end_step" in given else self.end,
            steps=frozenset(_numbers("save_steps", given["save_steps"])) if "save_steps" in given else self.steps,
        )


@dataclass(frozen=True, slots=True)
class SaveConfig:
    """A schedule for each mode; `usual` applies to modes without one of their own."""

    usual: SaveSchedule = SaveSchedule()
    modes: Mapping[Mode, SaveSchedule] = field(default_factory=dict)

    def has(self, mode: Mode, mode_step: int) -> bool:
        return self.modes.get(mode, self.usual).has(mode_step)

    def with_parameters(self, parameters: Mapping[str, object]) -> Self:
        """Return a copy with parameters applied, for all modes or for one of them, such as `eval.save_interval`.

        A parameter for all modes overrides what was set for a single mode before.
        """
        general = {word: value for word, value in parameters.items() if word in SAVE_PARAMETERS}
        usual = self.usual.with_parameters(general)
        modes = {mode: schedule.with_parameters(general) for mode, schedule in self.modes.items()}
        for mode in Mode:
            prefix = f"{mode.value.lower()}."
            own = {word.removeprefix(prefix): value for word, value in parameters.items() if word.startswith(prefix)}
            if own:
                modes[mode] = modes.get(mode, usual).with_parameters(own)
        return replace(self, usual=usual, modes=modes)


SAVE_PARAMETERS = frozenset({"save_interval", "start_step", "end_step", "save_steps"})
MODE_SAVE_PARAMETERS = frozenset(f"{mode.value.lower()}.{word}" for mode in Mode for word in SAVE_PARAMETERS)


def _numbers(word: str, value: object) -> list[int]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_number(word, each) for each in value]
    return [_number(word, part) for part in str(value).split(",") if part.strip()]


def _number(word: str, value: object) -> int:
    try:
        number = int(str(value).strip())
    except ValueError:
        number = -1
    if number < 0:
        raise InvalidRequest(f'"{word}" is "{value}", which is not a step. Give a whole number of 0 or more.')
    return number


REDUCTIONS = ("min", "max", "mean", "std", "variance", "sum", "prod")
NORMS = ("l1", "l2")
# Every other reduction follows from the statistics that each step has anyway.
_NEEDING_VALUES = {"prod", "abs_prod", "abs_min"}


@dataclass(frozen=True, slots=True)
class ReductionConfig:
    """The reductions to save, and whether to save the values as well.

    All but `extras` can be computed from a tensor's statistics.
    """

    reductions: frozenset[str] = frozenset()
    abs_reductions: frozenset[str] = frozenset()
    norms: frozenset[str] = frozenset()
    abs_norms: frozenset[str] = frozenset()
    save_raw_tensor: bool = False
    save_shape: bool = False

    @property
    def extras(self) -> frozenset[str]:
        """The reductions that need the values: prod, abs_prod, abs_min."""
        return (self.reductions | {f"abs_{word}" for word in self.abs_reductions}) & _NEEDING_VALUES

    @classmethod
    def parse(cls, words: str, *, save_raw_tensor: bool = False, save_shape: bool = False) -> Self:
        """Parse AWS's form, such as "min,abs_mean,l2_norm,abs_l1_norm"."""
        sets: dict[str, set[str]] = {"reductions": set(), "abs_reductions": set(), "norms": set(), "abs_norms": set()}
        for word in (part.strip() for part in words.split(",")):
            if word:
                field_name, name = _classify_reduction(word)
                sets[field_name].add(name)
        frozen = {field_name: frozenset(names) for field_name, names in sets.items()}
        return cls(**frozen, save_raw_tensor=save_raw_tensor, save_shape=save_shape)


# The default: values, no reductions.
RAW = ReductionConfig(save_raw_tensor=True)


def _classify_reduction(word: str) -> tuple[str, str]:
    """Return the field of ReductionConfig that a word belongs to, and its name there."""
    prefix = "abs_" if word.startswith("abs_") else ""
    name = word.removeprefix(prefix)
    if name in REDUCTIONS:
        return f"{prefix}reductions", name
    if name.removesuffix("_norm") in NORMS:
        return f"{prefix}norms", name.removesuffix("_norm")
    known = ", ".join((*REDUCTIONS, *(f"{norm}_norm" for norm in NORMS)))
    raise InvalidRequest(f'There is no reduction "{word}". Choose from {known}, each also with "abs_" in front.')
