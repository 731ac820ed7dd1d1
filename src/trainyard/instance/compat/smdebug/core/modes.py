"""What a program does with its model while steps are counted."""

from enum import Enum

from trainyard.formats.tensors.contract import Mode


class ModeKeys(Enum):
    """A mode; GLOBAL is all of them in the order of time, or a program that names none."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4


ALLOWED_MODES = list(ModeKeys)
ALLOWED_MODE_NAMES = [mode.name for mode in ModeKeys]


def str_to_mode_keys(mode_str: str) -> ModeKeys:
    """The mode of a word such as "train"."""
    if mode_str.upper() not in ALLOWED_MODE_NAMES:
        raise ValueError(f'"{mode_str}" is no mode; the modes are {", ".join(ALLOWED_MODE_NAMES).lower()}.')
    return ModeKeys[mode_str.upper()]


def to_mode(key: ModeKeys) -> Mode:
    """The same mode in the words of this project."""
    return Mode(key.name)


def to_key(mode: Mode) -> ModeKeys:
    """The same mode in the words of scripts."""
    return ModeKeys[mode.name]
