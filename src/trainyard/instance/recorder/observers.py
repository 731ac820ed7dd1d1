"""Chooses which parts of the recorder follow a training: the flight recorder, a requested checkpoint, or a replay."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.formats.tensors.contract import StepSubscriber
from trainyard.instance.hook.configuration import HookConfig, load_config
from trainyard.instance.hook.contract import SendEvent, StepObserver
from trainyard.instance.hook.worker import current_rank
from trainyard.instance.launch.import_watcher import RECORD_BYTES, REPLAY
from trainyard.instance.recorder.checkpoint import RequestedCheckpoint
from trainyard.instance.recorder.flight_recorder import FlightRecorder
from trainyard.instance.recorder.replay import CHANNEL, Replayer
from trainyard.link.contract import RuleSpec
from trainyard.link.event_protocol import HOOK_CONFIG, RECORDS, AgentEventKind
from trainyard.link.spec_queries import stops_training, wants_checkpoint

_DEFAULT_STEPS = 2
_DEFAULT_BYTES = 256 << 20
# How long a stop may wait until the step is recorded.
_STOP_DELAY_S = 1.0
_CHECKPOINTS = "checkpoints"
_UNFINISHED = ".trainyard/records"


@dataclass(frozen=True, slots=True)
class RecorderObservers:
    """What follows the steps on the training thread and on that of the rules; `fire` gets the findings of rules."""

    observers: Sequence[StepObserver] = ()
    subscribers: Sequence[StepSubscriber] = ()
    fire: Callable[[int, str], None] = lambda _step, _rule: None
    is_replay: bool = False


def make_observers(
    ml: Path, rules: Sequence[RuleSpec], *, environment: Mapping[str, str], send_event: SendEvent
) -> RecorderObservers:
    """Make the observers of a job with these rules, as its hook configuration and the environment say."""
    if environment.get(REPLAY, "").isdigit():
        return _replay(ml, environment, send_event)
    observers: list[StepObserver] = []
    job = environment.get("TRAINING_JOB_NAME", "")
    if any(wants_checkpoint(rule, job) for rule in rules):
        is_first = environment.get("LOCAL_RANK", "0") == "0"
        observers.append(
            RequestedCheckpoint(ml, _checkpoints(ml), environment=environment, send_event=send_event, is_first=is_first)
        )
    config = load_config(ml / HOOK_CONFIG)
    steps = _steps(config, rules)
    if config is None or not steps:
        return RecorderObservers(observers)
    recorder = FlightRecorder(
        config.folder / RECORDS,
        unfinished=ml / _UNFINISHED,
        steps=steps,
        max_bytes=_max_bytes(environment),
        note=lambda text: send_event(AgentEventKind.NOTE, {"text": text}),
    )
    stopping = {rule.name for rule in rules if stops_training(rule, job)}

    def fire(step: int, rule: str) -> None:
        recorder.fire(step, rule, wait_s=_STOP_DELAY_S if rule in stopping else 0.0)

    return RecorderObservers([*observers, recorder], [recorder], fire)


def _replay(ml: Path, environment: Mapping[str, str], send_event: SendEvent) -> RecorderObservers:
    replayer = Replayer(
        ml / "input/data" / CHANNEL,
        int(environment[REPLAY]),
        worker=current_rank(environment).name,
        output=ml / "output/data/replay",
        send_event=send_event,
    )
    return RecorderObservers([replayer], [replayer], is_replay=True)


def _steps(config: HookConfig | None, rules: Sequence[RuleSpec]) -> int:
    if config is None:
        return 0
    return config.record_steps if config.record_steps is not None else (_DEFAULT_STEPS if rules else 0)


def _max_bytes(environment: Mapping[str, str]) -> int:
    text = environment.get(RECORD_BYTES, "")
    return int(text) if text.isdigit() else _DEFAULT_BYTES


def _checkpoints(ml: Path) -> Path:
    with suppress(OSError, ValueError, KeyError):
        return Path(json.loads((ml / "input/config/checkpointconfig.json").read_bytes())["LocalPath"])
    return ml / _CHECKPOINTS
