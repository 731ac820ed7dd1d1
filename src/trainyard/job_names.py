"""Names of jobs and studies that nobody named: a base and the time."""

import random
import re
from collections.abc import Callable
from datetime import datetime, timedelta

from trainyard.foundation.clock import utc_now
from trainyard.wire.client import CallFailed

MAX_LENGTH = 63
MAX_STUDY_LENGTH = 32

_TRIES = 6
_STAMPED = re.compile(r"(?P<base>.+)-\d{4}(-\d{2}){5}-\d{3}")
_STUDY = re.compile(r"(?P<base>.+)-\d{6}-\d{4}(\d{2})?")  # the sagemaker SDK leaves the seconds out


def new_name(base: str, now: datetime) -> str:
    """`base` with the time in milliseconds after it; a base that is too long is cut."""
    stamp = f"{now:%Y-%m-%d-%H-%M-%S}-{now.microsecond // 1000:03}"
    return f"{base[: MAX_LENGTH - len(stamp) - 1]}-{stamp}"


def create_named(base: str, create: Callable[[str], object]) -> str:
    """Create a job under a new name of `base`, and return the name; see `_create`."""
    return _create(lambda now: new_name(base, now), create, step=timedelta(milliseconds=1))


def create_study_named(base: str, create: Callable[[str], object]) -> str:
    """The same for a tuning job."""
    return _create(lambda now: new_study_name(base, now), create, step=timedelta(seconds=1))


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


def _create(name_at: Callable[[datetime], str], create: Callable[[str], object], *, step: timedelta) -> str:
    """Create something under a name that has the time in it, in steps.

    Another client may choose the same name at the same moment. Whoever comes second takes that of a moment later, and
    of several each another one.
    """
    now, tried = utc_now(), 0
    while True:
        name = name_at(now)
        try:
            create(name)
        except CallFailed as error:
            tried += 1
            if error.code != "ResourceInUse" or tried == _TRIES:
                raise
            now += step * random.randint(1, 4**tried)
        else:
            return name
