"""What the processes of a program tell the agent of their instance: one JSON object a line, over a unix socket.

The hook of each rank and the judge beside the program connect to it. Nothing comes back: an agent acts on what it is
told, and who tells goes on. A program may write there as well, about itself; it can harm nobody but its own job.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SOCKET = ".trainyard/told"  # under the instance's /opt/ml
HOOK_CONFIG = "input/config/debughookconfig.json"  # in AWS's words
BOARD_CONFIG = "input/config/tensorboardoutputconfig.json"
RULES_CONFIG = "input/config/rules.json"  # the rules of the job: a list of RuleSpec as JSON
RESUMED = ".trainyard/resumed.json"  # how far each worker had come in the attempt before: its manifest, by its name
RECORDS = "records"  # in the folder of tensors: where the flight recorder leaves steps
WANTED = ".trainyard/wanted.json"  # what the agent wants of the hooks: `checkpoint`, the step for which to save one
MOST_BYTES = 256 * 1024  # of one line


class ToldKind(StrEnum):
    """The payload's members stand beside each."""

    RULE = "rule"  # as in FrameKind.RULE, and worker
    PROGRESS = "progress"  # worker, step, dropped, overhead (share of the step's time), note: at most once a second
    NOTE = "note"  # text
    SAVED = "saved"  # worker, path: a checkpoint that was wanted is there, or `why` it is not


@dataclass(frozen=True, slots=True)
class Told:
    kind: ToldKind
    payload: Mapping[str, Any] = field(default_factory=dict)


def encode(told: Told) -> bytes:
    """The line that tells it. A number that JSON does not have, such as NaN, is written as Python reads it."""
    return json.dumps({"kind": told.kind.value, "payload": dict(told.payload)}).encode() + b"\n"


def decode(line: bytes) -> Told | None:
    """What a line tells; None when it is not one of ours."""
    try:
        values = json.loads(line)
        return Told(ToldKind(values["kind"]), dict(values["payload"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
