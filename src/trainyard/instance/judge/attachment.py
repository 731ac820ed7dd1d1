"""Attaches the hook to a framework of the program, with all who shall follow it in this job.

Most jobs have a hook and nothing else. What they do not need is not imported: all of it would take as long as the rest
of the start of a small job.
"""

import os
from dataclasses import replace
from pathlib import Path

from trainyard.instance.hook.attaching import attach
from trainyard.instance.hook.contract import Audience
from trainyard.instance.judge.telling import Teller
from trainyard.instance.launch.attaching import REPLAY
from trainyard.link.told import BOARD_CONFIG, HOOK_CONFIG, RESUMED, RULES_CONFIG

_NO_RULES = (b"", b"[]")


def attach_to(framework: str, ml: Path) -> None:
    """Attach the hook of the job to a framework that has just been imported."""
    teller = Teller(str(ml))
    audience = Audience(tell=teller.tell)
    if _needs_more(ml):
        from trainyard.instance.judge.joining import joined

        audience = joined(ml, framework, teller=teller)
    if (ml / BOARD_CONFIG).exists() and REPLAY not in os.environ:
        from trainyard.instance.judge.board import board_of

        audience = replace(audience, subscribers=(*audience.subscribers, *board_of(ml)))
    if (ml / RESUMED).exists():
        from trainyard.instance.judge.resuming import read_reached

        audience = replace(audience, reached=read_reached(ml))
    attach(ml, audience, framework=framework)


def _needs_more(ml: Path) -> bool:
    """Whether there are rules, or steps to record or to run again."""
    return (
        REPLAY in os.environ or _read(ml / RULES_CONFIG) not in _NO_RULES or b"record_steps" in _read(ml / HOOK_CONFIG)
    )


def _read(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""
