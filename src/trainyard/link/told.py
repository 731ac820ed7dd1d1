"""What the processes of a program tell the agent of their instance: one JSON object a line, over a unix socket.

The hook of each rank and the judge beside the program connect to it. Nothing comes back: an agent acts on what it is
told, and who tells goes on. A program may write there as well, about itself; it can harm nobody but its own job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SOCKET = ".trainyard/told"  # under the instance's /opt/ml
HOOK_CONFIG = "input/config/debughookconfig.json"  # in AWS's words
RULES_CONFIG = "input/config/rules.json"  # the rules of the job: a list of RuleSpec as JSON
RECORDS = "output/tensors/records"  # where the flight recorder leaves steps


class ToldKind(StrEnum):
    """The payload's members stand beside each."""

    RULE = "rule"  # as in FrameKind.RULE, and worker
    PROGRESS = "progress"  # worker, step, dropped, overhead (share of the step's time), note: at most once a second
    NOTE = "note"  # text


@dataclass(frozen=True, slots=True)
class Told:
    kind: ToldKind
    payload: Mapping[str, Any] = field(default_factory=dict)
