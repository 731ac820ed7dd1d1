"""The hook that a program creates itself, in three lines."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook import attachment
from trainyard.instance.hook.configuration import HookConfig, load_config, parse_config
from trainyard.instance.hook.recording import HookRecording
from trainyard.link.event_protocol import HOOK_CONFIG

if TYPE_CHECKING:
    from torch import nn

CollectionParameters = Mapping[str, str | int | bool]
Collections = Mapping[str, CollectionParameters] | Iterable[str]


class Hook:
    """Captures the tensors of a training into a folder. It never breaks the training, and stays within a time budget.

        hook = Hook("/tmp/tensors", collections={"weights": {"save_interval": 100}, "gradients": {}})
        hook.watch(model)

    Losses are always captured. `collections` get statistics at every step, and values at the steps that their
    parameters select; these are the parameters of AWS's CollectionConfiguration. `parameters` are those of AWS's
    HookParameters. This hook replaces one that a job has attached.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        collections: Collections = (),
        parameters: CollectionParameters | None = None,
    ) -> None:
        self._start(parse_config(hook_config_content(folder, collections=collections, parameters=parameters)))

    @classmethod
    def of_job(cls, ml: str | Path = "/opt/ml") -> Self:
        """Create a hook with the configuration of this program's job, or for losses only if it has none."""
        hook = cls.__new__(cls)
        hook._start(load_config(Path(ml) / HOOK_CONFIG) or parse_config({}))
        return hook

    def watch(self, *models: "nn.Module", loss: "nn.Module | None" = None) -> None:
        """Capture the training of these models, and the output of `loss`. Losses from torch.nn are found without it."""
        for model in models:
            self._hook.watch(model, loss=loss)

    def mode(self, mode: Mode | str | None) -> None:
        """Set the mode from now on: TRAIN, EVAL or PREDICT. With None, the models' own mode decides."""
        self._hook.set_mode(None if mode is None else Mode(mode))

    def save_scalar(self, name: str, value: float) -> None:
        """Save a number with the step, as `scalar/<name>`."""
        self._hook.save_scalar(name, value)

    def save_tensor(self, name: str, value: Any) -> None:
        """Save a tensor or an array with the step."""
        self._hook.save_tensor(name, value)

    def close(self) -> None:
        """Write the remaining steps and mark the end. Called automatically when the program exits."""
        self._hook.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, config: HookConfig) -> None:
        from trainyard.instance.hook.pytorch.torch_hook import TorchHook

        recording = HookRecording(config, attachment.take_over())
        self._hook = TorchHook(recording, finds_models=False, waits_for_more=True)


def hook_config_content(
    folder: str | Path, *, collections: Collections = (), parameters: CollectionParameters | None = None
) -> dict[str, Any]:
    """Return what a program asks for in the form of a job's debughookconfig.json."""
    named = collections if isinstance(collections, Mapping) else {name: {} for name in collections}
    return {
        "LocalPath": str(Path(folder).expanduser()),
        "HookParameters": dict(parameters or {}),
        "CollectionConfigurations": [
            {"CollectionName": name, "CollectionParameters": own} for name, own in named.items()
        ],
    }
