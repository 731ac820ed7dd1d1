"""Modes: what a program does with its model in a step."""

from enum import Enum

from trainyard.formats.tensors.contract import Mode


class ModeKeys(Enum):
    """A mode. GLOBAL covers all of them in order of time, or a program that sets none."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4


ALLOWED_MODES = list(ModeKeys)
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]


def str_to_mode_keys(mode_str: str) -> ModeKeys:
    """Return the mode for a word such as "train"."""
    if mode_str.upper() not in ALLOWED_MODE_NAMES:
        raise ValueError(f'"{mode_str}" is not a mode; the modes are {", ".join(ALLOWED_MODE_NAMES).lower()}.')
    return ModeKeys[mode_str.upper()]


def to_mode(key: ModeKeys) -> Mode:
    """Convert smdebug's mode to ours."""
    return Mode(key.name)


def to_key(mode: Mode) -> ModeKeys:
    """Convert our mode to smdebug's."""
    return ModeKeys[mode.name]
