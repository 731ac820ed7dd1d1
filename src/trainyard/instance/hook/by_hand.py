"""The hook that a program makes itself, in three lines."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook import attaching
from trainyard.instance.hook.configuration import HookConfig, load_config, parse_config
from trainyard.instance.hook.recording import Recording
from trainyard.link.told import HOOK_CONFIG

if TYPE_CHECKING:
    from torch import nn

CollectionParameters = Mapping[str, str | int | bool]
Collections = Mapping[str, CollectionParameters] | Iterable[str]


class Hook:
    """Captures the tensors of a training into a folder. It never slows down or breaks what it watches.

        hook = Hook("/tmp/tensors", collections={"weights": {"save_interval": 100}, "gradients": {}})
        hook.watch(model)

    Losses are always captured. `collections` are those of which statistics are wanted at every step, and values at the
    steps that their parameters say, in the words of AWS's CollectionConfiguration; `parameters` are in those of its
    HookParameters. A hook that a job attached itself gives way to this one.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        collections: Collections = (),
        parameters: CollectionParameters | None = None,
    ) -> None:
        self._start(parse_config(asked(folder, collections=collections, parameters=parameters)))

    @classmethod
    def of_job(cls, ml: str | Path = "/opt/ml") -> Self:
        """With the configuration of the job that this program is; one that has none captures losses."""
        hook = cls.__new__(cls)
        hook._start(load_config(Path(ml) / HOOK_CONFIG) or parse_config({}))
        return hook

    def watch(self, *models: "nn.Module", loss: "nn.Module | None" = None) -> None:
        """Capture the training of these models, and what `loss` computes. Losses of torch.nn need not be named."""
        for model in models:
            self._hook.watch(model, loss=loss)

    def mode(self, mode: Mode | str | None) -> None:
        """What the program does from now on: TRAIN, EVAL or PREDICT. None lets the models' own mode tell."""
        self._hook.set_mode(None if mode is None else Mode(mode))

    def save_scalar(self, name: str, value: float) -> None:
        """Keep a number with the step, as `scalar/<name>`."""
        self._hook.save_scalar(name, value)

    def save_tensor(self, name: str, value: Any) -> None:
        """Keep a tensor or an array with the step."""
        self._hook.save_tensor(name, value)

    def close(self) -> None:
        """Write what is left and mark the end; done by itself when the program ends."""
        self._hook.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, config: HookConfig) -> None:
        from trainyard.instance.hook.pytorch.watching import TorchHook

        recording = Recording(config, attaching.take_over())
        self._hook = TorchHook(recording, finds_models=False, waits_for_more=True)


def asked(
    folder: str | Path, *, collections: Collections = (), parameters: CollectionParameters | None = None
) -> dict[str, Any]:
    """What a program asks for, as a job's configuration would say it."""
    named = collections if isinstance(collections, Mapping) else {name: {} for name in collections}
    return {
        "LocalPath": str(Path(folder).expanduser()),
        "HookParameters": dict(parameters or {}),
        "CollectionConfigurations": [
            {"CollectionName": name, "CollectionParameters": own} for name, own in named.items()
        ],
    }
