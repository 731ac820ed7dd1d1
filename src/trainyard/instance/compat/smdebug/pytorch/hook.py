"""The hook for PyTorch. A step is a call of the model that is registered, whatever the optimizer does."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from trainyard.instance.hook import attaching
from trainyard.instance.hook.contract import Audience
from trainyard.instance.hook.recording import Recording

from ..core.collection import DEFAULT_PYTORCH_COLLECTIONS, CollectionKeys
from ..core.hook import BaseHook
from ..core.utils import make_numpy_array
from ..exceptions import SMDebugError
from .capture import Capture
from .collection import Collection, CollectionManager


class Hook(BaseHook):
    """Saves tensors of models that are registered. One that a job has attached by itself gives way to this one."""

    default_collections = DEFAULT_PYTORCH_COLLECTIONS
    default_include_collections = [CollectionKeys.LOSSES]  # noqa: RUF012  # as the original has it
    manager_class = CollectionManager

    def __init__(self, out_dir: str | None = None, *arguments: Any, **options: Any) -> None:
        super().__init__(out_dir, *arguments, **options)
        self.has_registered_module = self.has_registered_loss_module = False
        self._capture = Capture(self._begin_step, self._give_tensors)
        self._followers = attaching.take_over()

    def register_module(self, module: nn.Module) -> None:
        """Save tensors of a model, whose every call is a step from now on."""
        if not isinstance(module, nn.Module):
            raise SMDebugError(f"{module!r} is no module of torch, but a {type(module).__name__}.")
        assert not self._capture.has(module), f"The module {type(module).__name__} is registered already."
        self._capture.register(module)
        self.has_registered_module = True

    def register_hook(self, module: nn.Module) -> None:
        self.register_module(module)

    def register_loss(self, loss_module: nn.Module) -> None:
        """Save what a loss computes, whether it is one of torch's or not."""
        if not isinstance(loss_module, nn.Module):
            raise SMDebugError(f"{loss_module!r} is no module of torch; tell a loss by record_tensor_value.")
        self._capture.register_loss(loss_module)
        name = loss_module._get_name()
        if "oss" not in name:  # a loss of the script's own, which the collection's regex would not find
            self.get_collection(CollectionKeys.LOSSES).include(f"^{name}_output_")
        self.has_registered_loss_module = True

    def record_tensor_value(self, tensor_name: str, tensor_value: torch.Tensor) -> None:
        """What a function made that no module stands for, such as F.mse_loss: `<name>_output_0`."""
        assert isinstance(tensor_value, torch.Tensor), f"{tensor_name} is a {type(tensor_value).__name__}, no tensor."
        self._capture.record(tensor_name, tensor_value)

    def close(self) -> None:
        super().close()
        self._capture.close()

    def _prepare(self) -> None:
        for collection in self.get_collections().values():
            if isinstance(collection, Collection):
                collection.include_modules(self._capture.names)
        super()._prepare()

    def _finish_step(self, recording: Recording) -> None:
        self._capture.finish()
        super()._finish_step(recording)

    def _audience(self) -> Audience:
        return self._followers

    @staticmethod
    def _make_numpy_array(value: Any) -> NDArray[Any]:
        if not isinstance(value, torch.Tensor):
            return make_numpy_array(value)
        plain = value.detach().cpu()
        array: NDArray[Any] = (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()
        return array
