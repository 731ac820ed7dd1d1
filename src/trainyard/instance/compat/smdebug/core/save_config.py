"""The steps at which tensors are saved."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from ..exceptions import SMDebugTypeError, SMDebugValueError
from .modes import ModeKeys

DEFAULT_SAVE_CONFIG_INTERVAL = 500
DEFAULT_SAVE_CONFIG_START_STEP = 0
DEFAULT_SAVE_CONFIG_END_STEP = None
DEFAULT_SAVE_CONFIG_SAVE_STEPS: list[int] = []
ALLOWED_PARAMS = ["save_interval", "save_steps", "start_step", "end_step"]

SaveConfigLike = Union["SaveConfig", "SaveConfigMode", Mapping[Any, Any], None]


@dataclass(init=False)
class SaveConfigMode:
    """The steps of a mode: those listed, and every `save_interval`-th from `start_step` until before `end_step`."""

    save_interval: int
    start_step: int
    end_step: int | None
    save_steps: list[int] = field(default_factory=list)

    def __init__(
        self,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: list[int] | None = None,
    ) -> None:
        self.save_interval = DEFAULT_SAVE_CONFIG_INTERVAL if save_interval is None else _parse_step(save_interval)
        self.start_step = DEFAULT_SAVE_CONFIG_START_STEP if start_step is None else _parse_step(start_step)
        self.end_step = DEFAULT_SAVE_CONFIG_END_STEP if end_step is None else _parse_step(end_step)
        self.save_steps = [] if save_steps is None else save_steps
        if self.save_interval < 1:
            raise SMDebugValueError(f"save_interval is {self.save_interval}; it must be 1 or more.")
        if not isinstance(self.save_steps, list) or not all(isinstance(step, int) for step in self.save_steps):
            raise SMDebugValueError(f"save_steps is {self.save_steps!r}; it must be a list of whole numbers.")

    def should_save_step(self, step_num: int) -> bool:
        if step_num in self.save_steps:
            return True
        is_within = self.start_step <= step_num and (self.end_step is None or step_num < self.end_step)
        return is_within and step_num % self.save_interval == 0

    def to_json_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ALLOWED_PARAMS}

    @classmethod
    def from_dict(
        cls, params: Mapping[str, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> "SaveConfigMode | None":
        """Parse a dict, with defaults for missing keys."""
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise SMDebugTypeError(f"{params!r} is not a dict of {', '.join(ALLOWED_PARAMS)}.")
        merged = {**(default_values or {}), **params}
        return cls(**{name: merged.get(name) for name in ALLOWED_PARAMS})


@dataclass(init=False)
class SaveConfig:
    """The steps of each mode. A mode of None takes the hook's config."""

    mode_save_configs: dict[ModeKeys, SaveConfigMode | None]

    def __init__(
        self,
        mode_save_configs: Mapping[ModeKeys, SaveConfigMode | None] | None = None,
        save_interval: int | None = None,
        start_step: int | None = None,
        end_step: int | None = None,
        save_steps: list[int] | None = None,
    ) -> None:
        if mode_save_configs is None:
            for_all_modes = SaveConfigMode(save_interval, start_step, end_step, save_steps)
            self.mode_save_configs = dict.fromkeys(ModeKeys, for_all_modes)
            return
        for mode, config in mode_save_configs.items():
            if not isinstance(mode, ModeKeys) or not (config is None or isinstance(config, SaveConfigMode)):
                raise SMDebugValueError(f"{mode!r}: {config!r} is not a mode with its SaveConfigMode.")
        self.mode_save_configs = {mode: mode_save_configs.get(mode) for mode in ModeKeys}

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        config = self.mode_save_configs[mode]
        if config is None:
            raise SMDebugValueError(f"The mode {mode.name} has no config; merge_default_save_config fills it in.")
        return config

    def set_save_config(self, mode: ModeKeys, save_config_mode: SaveConfigMode) -> None:
        if not isinstance(save_config_mode, SaveConfigMode):
            raise SMDebugValueError(f"{save_config_mode!r} is not a SaveConfigMode.")
        self.mode_save_configs[mode] = save_config_mode

    def should_save_step(self, mode: ModeKeys, step_num: int) -> bool:
        return self.get_save_config(mode).should_save_step(step_num)

    def merge_default_save_config(self, default_save_config: "SaveConfig") -> None:
        """Fill in the modes that have no config."""
        for mode, config in self.mode_save_configs.items():
            if config is None:
                self.mode_save_configs[mode] = default_save_config.mode_save_configs[mode] or SaveConfigMode()

    def to_json_dict(self) -> dict[str, Any]:
        return {mode.name: config and config.to_json_dict() for mode, config in self.mode_save_configs.items()}

    def to_json(self) -> str:
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(
        cls, params: Mapping[Any, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> "SaveConfig | None":
        """Parse a dict whose keys are modes or their names, and whose values are SaveConfigModes or dicts."""
        if params is None:
            return None
        return cls({_mode(key): _config_of_mode(value, default_values) for key, value in params.items()})

    @classmethod
    def from_json(cls, json_str: str) -> "SaveConfig | None":
        return cls.from_dict(json.loads(json_str))

    @classmethod
    def from_save_config_mode(cls, save_config_mode: SaveConfigMode) -> "SaveConfig":
        return cls(dict.fromkeys(ModeKeys, save_config_mode))

    @classmethod
    def parse(cls, obj: SaveConfigLike) -> "SaveConfig":
        """Convert any accepted form to a SaveConfig; None gives the default."""
        if isinstance(obj, SaveConfig):
            return obj
        if isinstance(obj, SaveConfigMode):
            return cls.from_save_config_mode(obj)
        if obj is None or isinstance(obj, Mapping):
            return cls.from_dict(obj) or cls()
        raise SMDebugTypeError(f"{obj!r} is not a SaveConfig, a SaveConfigMode or a dict of modes.")


def _parse_step(value: int | str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise SMDebugValueError(f"{value!r} is not a whole number of steps.") from error


def _mode(key: object) -> ModeKeys:
    if isinstance(key, str) and key in ModeKeys.__members__:
        return ModeKeys[key]
    if not isinstance(key, ModeKeys):
        raise SMDebugValueError(f"{key!r} is not a mode; the modes are {', '.join(ModeKeys.__members__)}.")
    return key


def _config_of_mode(value: Any, default_values: Mapping[str, Any] | None) -> SaveConfigMode | None:
    return value if isinstance(value, SaveConfigMode) else SaveConfigMode.from_dict(value, default_values)
