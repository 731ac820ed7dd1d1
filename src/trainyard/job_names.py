"""Names of jobs and studies that nobody named: a base and the time."""

import re
from datetime import datetime

MAX_LENGTH = 63
MAX_STUDY_LENGTH = 32

_STAMPED = re.compile(r"(?P<base>.+)-\d{4}(-\d{2}){5}-\d{3}")
_STUDY = re.compile(r"(?P<base>.+)-\d{6}-\d{4}(\d{2})?")  # the sagemaker SDK leaves the seconds out


def new_name(base: str, now: datetime) -> str:
    """`base` with the time in milliseconds after it; a base that is too long is cut."""
    stamp = f"{now:%Y-%m-%d-%H-%M-%S}-{now.microsecond // 1000:03}"
    return f"{base[: MAX_LENGTH - len(stamp) - 1]}-{stamp}"


def base_of(name: str) -> str:
    """What a name was made from, or the name itself."""
    stamped = _STAMPED.fullmatch(name)
    return stamped["base"] if stamped else name


def new_study_name(base: str, now: datetime) -> str:
    """The name of a tuning job, which can be half as long: `base` with the time in seconds after it."""
    stamp = f"{now:%y%m%d-%H%M%S}"
    return f"{base[: MAX_STUDY_LENGTH - len(stamp) - 1].rstrip('-')}-{stamp}"


def base_of_study(name: str) -> str:
    """What the name of a tuning job was made from, or the name itself."""
    stamped = _STUDY.fullmatch(name)
    return stamped["base"] if stamped else name


def base_of_image(image_uri: str) -> str:
    """The repository of an image: `pytorch-training` of `….amazonaws.com/pytorch-training:2.8.0-cpu-py312`."""
    return image_uri.rpartition("/")[2].partition(":")[0].partition("@")[0]


def as_base(text: str) -> str:
    """Any text as part of a name, which has only letters, digits and single dashes."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-") or "job"
