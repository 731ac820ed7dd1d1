"""Attaches the hook to a program that knows nothing of it.

Called in each process of a job when a framework has just been imported. Nothing happens without a configuration. A
program that makes a hook of its own has that one instead, with all who would have followed this.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.hook.collecting import TORCH, Framework
from trainyard.instance.hook.configuration import HookConfig, load_config
from trainyard.instance.hook.contract import Audience
from trainyard.link.told import HOOK_CONFIG, ToldKind

log = logging.getLogger(__name__)

_TENSORBOARD_CONFIG = "input/config/tensorboardoutputconfig.json"  # of a job that shows its tensors in TensorBoard


def attach(ml: Path, audience: Audience, *, framework: str = "torch") -> None:
    """Capture what the program trains with a framework, as the job's configuration under `ml` says.

    A second call for a framework does nothing. Nothing raises: why there is no hook is told to the audience.
    """
    if framework in _attached or framework not in _STARTS:
        return
    try:
        close = _STARTS[framework](ml, audience)
    except InvalidRequest as error:
        _tell(audience, f"No tensors are captured: {error.message}")
    except Exception as error:
        log.warning("the hook could not be attached", exc_info=True)
        _tell(audience, f"The hook could not be attached; training goes on: {error!r}.")
    else:
        _attached[framework] = (audience, close)


def take_over(framework: str = "torch") -> Audience:
    """End what is attached, since the program makes a hook of its own; those who followed it follow that one."""
    audience, close = _attached.pop(framework, (Audience(), None))
    if close is not None:
        close()
    return audience


def _start_torch(ml: Path, audience: Audience) -> Callable[[], None] | None:
    from trainyard.instance.hook.pytorch.watching import TorchHook
    from trainyard.instance.hook.recording import Recording

    config = _config(ml, TORCH)
    return None if config is None else TorchHook(Recording(config, audience)).close


def _start_xgboost(ml: Path, audience: Audience) -> Callable[[], None] | None:
    from trainyard.instance.hook.recording import Recording
    from trainyard.instance.hook.xgboost import XGBOOST, BoosterCallback, watch_training

    config = _config(ml, XGBOOST)
    if config is None:
        return None
    recording = Recording(config, audience)
    watch_training(
        lambda parameters, data, other: BoosterCallback(
            recording, hyperparameters=parameters, train_data=data, validation_data=other
        )
    )
    return recording.close


def _start_keras(ml: Path, audience: Audience) -> Callable[[], None] | None:
    from trainyard.instance.hook.keras import KERAS, BatchCallback, runs_on_torch, watch_fitting
    from trainyard.instance.hook.recording import Recording

    config = _config(ml, KERAS)
    if config is None or runs_on_torch():  # where its layers are modules of torch, and captured as such
        return None
    recording = Recording(config, audience)
    watch_fitting(lambda: BatchCallback(recording))
    return recording.close


def _config(ml: Path, framework: Framework) -> HookConfig | None:
    config = load_config(ml / HOOK_CONFIG, framework=framework)
    if config is not None and (ml / _TENSORBOARD_CONFIG).exists():
        return replace(config, has_histograms=True)
    return config


_STARTS = {"torch": _start_torch, "xgboost": _start_xgboost, "keras": _start_keras}
_attached: dict[str, tuple[Audience, Callable[[], None] | None]] = {}


def _tell(audience: Audience, text: str) -> None:
    if audience.tell is not None:
        audience.tell(ToldKind.NOTE, {"text": text})
