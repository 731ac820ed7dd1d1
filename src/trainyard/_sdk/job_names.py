"""Generated names of training and tuning jobs: a base and the time."""

import random
import re
from collections.abc import Callable
from datetime import datetime, timedelta

from trainyard.foundation.clock import utc_now
from trainyard.wire.client import CallFailed

MAX_LENGTH = 63
MAX_STUDY_LENGTH = 32
# What a name may be, as in the API's own model.
JOB_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")

_MAX_ATTEMPTS = 6
_TIMED_NAME = re.compile(r"(?P<base>.+)-\d{4}(-\d{2}){5}-\d{3}")
# The sagemaker SDK leaves the seconds out.
_STUDY_NAME = re.compile(r"(?P<base>.+)-\d{6}-\d{4}(\d{2})?")


def new_name(base: str, now: datetime) -> str:
    """Return `base` followed by the time in milliseconds. A base that is too long is cut."""
    stamp = f"{now:%Y-%m-%d-%H-%M-%S}-{now.microsecond // 1000:03}"
    return f"{base[: MAX_LENGTH - len(stamp) - 1]}-{stamp}"


def create_named(base: str, create: Callable[[str], object]) -> str:
    """Create a training job with a generated name, and return the name."""
    return _create(lambda now: new_name(base, now), create, step=timedelta(milliseconds=1))


def create_study_named(base: str, create: Callable[[str], object]) -> str:
    """Create a tuning job with a generated name, and return the name."""
    return _create(lambda now: new_study_name(base, now), create, step=timedelta(seconds=1))


def base_of(name: str) -> str:
    """Return the base of a generated name, or the name itself."""
    match = _TIMED_NAME.fullmatch(name)
    return match["base"] if match else name


def new_study_name(base: str, now: datetime) -> str:
    """Return a name for a tuning job, which may be only half as long: `base` followed by the time in seconds."""
    stamp = f"{now:%y%m%d-%H%M%S}"
    return f"{base[: MAX_STUDY_LENGTH - len(stamp) - 1].rstrip('-')}-{stamp}"


def base_of_study(name: str) -> str:
    """Return the base of the generated name of a tuning job, or the name itself."""
    match = _STUDY_NAME.fullmatch(name)
    return match["base"] if match else name


def base_of_image(image_uri: str) -> str:
    """Return the repository of an image: `pytorch-training` for `….amazonaws.com/pytorch-training:2.8.0-cpu-py312`."""
    return image_uri.rpartition("/")[2].partition(":")[0].partition("@")[0]


def as_base(text: str) -> str:
    """Return a text as part of a name, which may contain only letters, digits and single dashes."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-") or "job"


def _create(name_at: Callable[[datetime], str], create: Callable[[str], object], *, step: timedelta) -> str:
    """Create something with a name that contains the time, and return the name.

    If another client has taken the name, this tries a later time. The step is random, so that several clients do not
    collide again.
    """
    now, attempts = utc_now(), 0
    while True:
        name = name_at(now)
        try:
            create(name)
        except CallFailed as error:
            attempts += 1
            if error.code != "ResourceInUse" or attempts == _MAX_ATTEMPTS:
                raise
            now += step * random.randint(1, 4**attempts)
        else:
            return name
