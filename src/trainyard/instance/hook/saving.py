"""At which steps tensors are saved: by an interval, a range and a list, for each mode."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from trainyard.formats.tensors.contract import Mode
from trainyard.foundation.errors import InvalidRequest

DEFAULT_INTERVAL = 500  # AWS's, for every framework but XGBoost


@dataclass(frozen=True, slots=True)
class SaveSchedule:
    """The steps that are saved in one mode: those listed, and every `interval`-th from `start` until before `end`."""

    interval: int = DEFAULT_INTERVAL
    start: int = 0
    end: int | None = None
    steps: frozenset[int] = frozenset()

    def has(self, mode_step: int) -> bool:
        if mode_step in self.steps:
            return True
        is_within = self.start <= mode_step and (self.end is None or mode_step < self.end)
        return is_within and mode_step % self.interval == 0

    def changed(self, parameters: Mapping[str, object]) -> Self:
        """The same with what these parameters say, in AWS's words; their values may be strings."""
        given = {word: value for word, value in parameters.items() if value not in (None, "", "None")}
        interval = _number("save_interval", given.get("save_interval", self.interval))
        if interval == 0:
            raise InvalidRequest('A save interval is 0. Give "save_interval" as 1 or more, or leave it out.')
        return replace(
            self,
            interval=interval,
            start=_number("start_step", given.get("start_step", self.start)),
            end=_number("end_step", given["end_step"]) if "end_step" in given else self.end,
            steps=frozenset(_numbers("save_steps", given["save_steps"])) if "save_steps" in given else self.steps,
        )


@dataclass(frozen=True, slots=True)
class SaveConfig:
    """A schedule for each mode; `usual` holds for a mode that has none of its own."""

    usual: SaveSchedule = SaveSchedule()
    modes: Mapping[Mode, SaveSchedule] = field(default_factory=dict)

    def has(self, mode: Mode, mode_step: int) -> bool:
        return self.modes.get(mode, self.usual).has(mode_step)

    def changed(self, parameters: Mapping[str, object]) -> Self:
        """The same with what these parameters say: words for all modes, and words of one, such as `eval.save_interval`.

        What is said for all modes here holds over what was said for one before.
        """
        general = {word: value for word, value in parameters.items() if word in SAVE_WORDS}
        usual = self.usual.changed(general)
        modes = {mode: schedule.changed(general) for mode, schedule in self.modes.items()}
        for mode in Mode:
            prefix = f"{mode.value.lower()}."
            own = {word.removeprefix(prefix): value for word, value in parameters.items() if word.startswith(prefix)}
            if own:
                modes[mode] = modes.get(mode, usual).changed(own)
        return replace(self, usual=usual, modes=modes)


SAVE_WORDS = frozenset({"save_interval", "start_step", "end_step", "save_steps"})
MODE_SAVE_WORDS = frozenset(f"{mode.value.lower()}.{word}" for mode in Mode for word in SAVE_WORDS)


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
        raise InvalidRequest(f'"{word}" is "{value}", which is no step. Give a whole number that is not negative.')
    return number
