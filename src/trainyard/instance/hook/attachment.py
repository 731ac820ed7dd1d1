"""Attaches the hook to a program that does not know about it.

Called in each process of a job, right after a framework was imported. Does nothing without a configuration. If the
program creates a hook of its own, that one replaces this one and takes over its context.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.hook.configuration import HookConfig, load_config
from trainyard.instance.hook.contract import HookContext
from trainyard.instance.hook.selection import TORCH, FrameworkDefaults
from trainyard.link.event_protocol import HOOK_CONFIG, AgentEventKind

log = logging.getLogger(__name__)

# Present only in jobs that show their tensors in TensorBoard.
_TENSORBOARD_CONFIG = "input/config/tensorboardoutputconfig.json"


def attach(ml: Path, context: HookContext, *, framework: str = "torch") -> None:
    """Attach the hook to a framework, as the job's configuration under `ml` says.

    A second call for the same framework does nothing. Never raises: a failure is sent to the agent as a note.
    """
    if framework in _attached or framework not in _ATTACH:
        return
    try:
        close = _ATTACH[framework](ml, context)
    except InvalidRequest as error:
        _send_note(context, f"No tensors are captured: {error.message}")
    except Exception as error:
        log.warning("the hook could not be attached", exc_info=True)
        _send_note(context, f"The hook could not be attached; training continues: {error!r}.")
    else:
        _attached[framework] = (context, close)


def take_over(framework: str = "torch") -> HookContext:
    """Detach the hook, because the program creates one of its own; return the context for that one."""
    context, close = _attached.pop(framework, (HookContext(), None))
    if close is not None:
        close()
    return context


def _attach_torch(ml: Path, context: HookContext) -> Callable[[], None] | None:
    from trainyard.instance.hook.pytorch.torch_hook import TorchHook
    from trainyard.instance.hook.recording import HookRecording

    config = _config(ml, TORCH)
    return None if config is None else TorchHook(HookRecording(config, context)).close


def _attach_xgboost(ml: Path, context: HookContext) -> Callable[[], None] | None:
    from trainyard.instance.hook.recording import HookRecording
    from trainyard.instance.hook.xgboost import XGBOOST, BoosterCallback, attach_to_training

    config = _config(ml, XGBOOST)
    if config is None:
        return None
    recording = HookRecording(config, context)
    attach_to_training(
        lambda parameters, data, other: BoosterCallback(
            recording, hyperparameters=parameters, train_data=data, validation_data=other
        )
    )
    return recording.close


def _attach_keras(ml: Path, context: HookContext) -> Callable[[], None] | None:
    from trainyard.instance.hook.keras import KERAS, BatchCallback, attach_to_fitting, runs_on_torch
    from trainyard.instance.hook.recording import HookRecording

    config = _config(ml, KERAS)
    # On the torch backend, Keras layers are torch modules, and the torch hook observes them.
    if config is None or runs_on_torch():
        return None
    recording = HookRecording(config, context)
    attach_to_fitting(lambda: BatchCallback(recording))
    return recording.close


def _config(ml: Path, framework: FrameworkDefaults) -> HookConfig | None:
    config = load_config(ml / HOOK_CONFIG, framework=framework)
    if config is not None and (ml / _TENSORBOARD_CONFIG).exists():
        return replace(config, has_histograms=True)
    return config


_ATTACH = {"torch": _attach_torch, "xgboost": _attach_xgboost, "keras": _attach_keras}
_attached: dict[str, tuple[HookContext, Callable[[], None] | None]] = {}


def _send_note(context: HookContext, text: str) -> None:
    if context.send_event is not None:
        context.send_event(AgentEventKind.NOTE, {"text": text})
