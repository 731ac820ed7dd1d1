"""What must hold for every training job that has ended, whatever was killed."""

import itertools
import math
import os
from pathlib import Path
from typing import Any

from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.transitions import LEGAL
from trainyard.link.folders import InstanceFolder


def assert_forward(seen: list[str]) -> None:
    """Check that each status can follow the one before, perhaps with unobserved ones between. Only Restarting loops."""
    for before, after in itertools.pairwise(seen):
        assert SecondaryStatus(after) in reachable(SecondaryStatus(before)), seen


def reachable(status: SecondaryStatus) -> set[SecondaryStatus]:
    found: set[SecondaryStatus] = set()
    pending = [status]
    while pending:
        for each in LEGAL[pending.pop()] - found:
            found.add(each)
            pending.append(each)
    return found


def assert_seconds(told: dict[str, Any]) -> None:
    """Check that the training time fits between its public start and end, and that all of it is billed."""
    if "TrainingStartTime" not in told:
        assert "TrainingTimeInSeconds" not in told
        return
    lasted = (told["TrainingEndTime"] - told["TrainingStartTime"]).total_seconds()
    assert 0 < told["TrainingTimeInSeconds"] <= max(1, math.ceil(lasted + 0.001)), told
    assert told["BillableTimeInSeconds"] == told["TrainingTimeInSeconds"]


def left_in_kernel(attempts: list[InstanceFolder]) -> list[str]:
    """Return the mounts and control groups of a job."""
    marks = {folder.root.parents[1].name for folder in attempts}
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    left = [line for line in mounts if any(mark in line for mark in marks)]
    # Path.glob fails if somebody else's group disappears meanwhile.
    groups = [Path(parent, name) for parent, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    return left + [str(group) for group in groups if any(mark in group.name for mark in marks)]
