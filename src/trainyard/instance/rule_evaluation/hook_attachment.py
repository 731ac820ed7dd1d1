"""Attaches the hook to a framework of the program, together with the rules and recorders of the job.

Most jobs have a hook and nothing else. What they do not need is not imported, since all of it would take as long as the
rest of the start of a small job.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from trainyard.formats.tensors.contract import Mode, StepSubscriber
from trainyard.instance.hook.attachment import attach
from trainyard.instance.hook.contract import HookContext, ResumePoint
from trainyard.instance.launch.import_watcher import REPLAY
from trainyard.instance.rule_evaluation.event_client import EventClient
from trainyard.link.event_protocol import BOARD_CONFIG, HOOK_CONFIG, RESUMED, RULES_CONFIG

_NO_RULES = (b"", b"[]")


def attach_hook(framework: str, ml: Path, environment: Mapping[str, str]) -> None:
    """Attach the job's hook to a framework that has just been imported; `environment` is that of this process."""
    client = EventClient(str(ml))
    context = HookContext(send_event=client.send)
    is_replay = REPLAY in environment
    if is_replay or _has_rules(ml) or _records_steps(ml):
        from trainyard.instance.rule_evaluation.rule_subscriber import make_hook_context

        context = make_hook_context(ml, framework, environment=environment, client=client)
    if (ml / BOARD_CONFIG).exists() and not is_replay:
        context = replace(context, subscribers=(*context.subscribers, _tensorboard_subscriber(ml)))
    if (ml / RESUMED).exists():
        context = replace(context, resume_points=read_resume_points(ml))
    attach(ml, context, framework=framework)


def read_resume_points(ml: Path) -> dict[str, ResumePoint]:
    """Return how far each worker of an interrupted training had come, as the agent recorded it for this attempt.

    Empty in a first attempt, or if the file cannot be read.
    """
    try:
        manifests = json.loads((ml / RESUMED).read_bytes())
        return {
            worker: ResumePoint(
                int(manifest["last_step"]) + 1,
                {Mode(mode): int(count) for mode, count in manifest.get("mode_steps", {}).items()},
            )
            for worker, manifest in manifests.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _has_rules(ml: Path) -> bool:
    return _read_or_empty(ml / RULES_CONFIG) not in _NO_RULES


def _records_steps(ml: Path) -> bool:
    return b"record_steps" in _read_or_empty(ml / HOOK_CONFIG)


def _tensorboard_subscriber(ml: Path) -> StepSubscriber:
    from trainyard.formats.tensors.tensorboard_summaries import TensorBoardSubscriber

    config = json.loads((ml / BOARD_CONFIG).read_bytes())
    return TensorBoardSubscriber(Path(config["LocalPath"]))


def _read_or_empty(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""
