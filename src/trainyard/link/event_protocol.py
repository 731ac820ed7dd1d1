"""The event protocol: what the processes of a program report to the agent of their instance over a unix socket.

Each event is one JSON object on one line. The hook of each rank and the rule evaluation process connect to the socket.
The agent never replies: it acts on the events, and the sender continues. The program itself may write to the socket
too; it can only harm its own job.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# Paths below the instance's /opt/ml.
SOCKET = ".trainyard/told"
# In AWS's terms.
HOOK_CONFIG = "input/config/debughookconfig.json"
BOARD_CONFIG = "input/config/tensorboardoutputconfig.json"
# The rules of the job: a list of RuleSpec as JSON.
RULES_CONFIG = "input/config/rules.json"
# What the hook profiles, in AWS's terms; replaced when that changes.
PROFILER_CONFIG = "input/config/profilerconfig.json"
# Where the hook writes step times, one file for each rank.
STEP_TIMES = ".trainyard/steps"
# What the agent wants profiled now: `number`, which counts the requests, and `steps`.
PROFILE_WANTED = ".trainyard/profile.json"
# How far each worker had come in the attempt before: its manifest, by its name.
RESUMED = ".trainyard/resumed.json"
# What the agent wants from the hooks: `checkpoint`, the step for which to save one.
WANTED = ".trainyard/wanted.json"
# Where the flight recorder writes steps, in the folder of tensors.
RECORDS = "records"
# The longest line.
MAX_EVENT_BYTES = 256 * 1024


class AgentEventKind(StrEnum):
    """The kinds of events. The comments list the members of each payload."""

    RULE = "rule"  # as in FrameKind.RULE, and worker
    PROGRESS = "progress"  # worker, step, dropped, overhead (share of the step's time), note: at most once a second
    NOTE = "note"  # text
    SAVED = "saved"  # worker, path of the requested checkpoint, or `why` there is none


@dataclass(frozen=True, slots=True)
class AgentEvent:
    kind: AgentEventKind
    payload: Mapping[str, Any] = field(default_factory=dict)


def encode_event(event: AgentEvent) -> bytes:
    """Return the line for an event. Numbers that JSON lacks, such as NaN, are written the way Python reads them."""
    return json.dumps({"kind": event.kind.value, "payload": dict(event.payload)}).encode() + b"\n"


def decode_event(line: bytes) -> AgentEvent | None:
    """Return the event on a line; None when the line is not a valid event."""
    try:
        values = json.loads(line)
        return AgentEvent(AgentEventKind(values["kind"]), dict(values["payload"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
