"""Which parts of the recorder follow a training: the ring of steps, a checkpoint that may be wanted, or a replay."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.formats.tensors.contract import StepSubscriber
from trainyard.instance.hook.configuration import HookConfig, load_config
from trainyard.instance.hook.contract import StepObserver
from trainyard.instance.hook.workers import this_worker
from trainyard.instance.launch.attaching import RECORD_BYTES, REPLAY
from trainyard.instance.recorder.checkpoint import WantedCheckpoint
from trainyard.instance.recorder.recording import Recorder
from trainyard.instance.recorder.replaying import CHANNEL, Replayer
from trainyard.link.actions import is_stop, wants_checkpoint
from trainyard.link.contract import RuleSpec
from trainyard.link.told import HOOK_CONFIG, RECORDS, ToldKind

_USUAL_STEPS = 2
_USUAL_BYTES = 256 << 20
_STOP_WAITS_S = 1.0  # for the record of the step
_CHECKPOINTS = "checkpoints"
_UNFINISHED = ".trainyard/records"

Tell = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Observers:
    """Who follows the steps, in the thread that trains and in that of the rules, and who is told of findings."""

    observers: Sequence[StepObserver] = ()
    subscribers: Sequence[StepSubscriber] = ()
    fire: Callable[[int, str], None] = lambda _step, _rule: None
    is_replay: bool = False


def observers_of(ml: Path, rules: Sequence[RuleSpec], *, tell: Tell) -> Observers:
    """Those of a job with these rules, as its hook's configuration and its environment say."""
    if os.environ.get(REPLAY, "").isdigit():
        return _replay(ml, int(os.environ[REPLAY]), tell)
    observers: list[StepObserver] = []
    job = os.environ.get("TRAINING_JOB_NAME", "")
    if any(wants_checkpoint(rule, job) for rule in rules):
        is_first = os.environ.get("LOCAL_RANK", "0") == "0"
        observers.append(WantedCheckpoint(ml, _checkpoints(ml), tell=tell, is_first=is_first))
    config = load_config(ml / HOOK_CONFIG)
    steps = _steps(config, rules)
    if config is None or not steps:
        return Observers(observers)
    recorder = Recorder(
        config.folder / RECORDS,
        unfinished=ml / _UNFINISHED,
        steps=steps,
        most_bytes=_most_bytes(),
        note=lambda text: tell(ToldKind.NOTE, {"text": text}),
    )
    stopping = {rule.name for rule in rules if is_stop(rule, job)}

    def fire(step: int, rule: str) -> None:
        recorder.fire(step, rule, wait_s=_STOP_WAITS_S if rule in stopping else 0.0)

    return Observers([*observers, recorder], [recorder], fire)


def _replay(ml: Path, step: int, tell: Tell) -> Observers:
    replayer = Replayer(
        ml / "input/data" / CHANNEL,
        step,
        worker=this_worker(os.environ).name,
        output=ml / "output/data/replay",
        tell=tell,
    )
    return Observers([replayer], [replayer], is_replay=True)


def _steps(config: HookConfig | None, rules: Sequence[RuleSpec]) -> int:
    if config is None:
        return 0
    return config.record_steps if config.record_steps is not None else (_USUAL_STEPS if rules else 0)


def _most_bytes() -> int:
    told = os.environ.get(RECORD_BYTES, "")
    return int(told) if told.isdigit() else _USUAL_BYTES


def _checkpoints(ml: Path) -> Path:
    with suppress(OSError, ValueError, KeyError):
        return Path(json.loads((ml / "input/config/checkpointconfig.json").read_bytes())["LocalPath"])
    return ml / _CHECKPOINTS
