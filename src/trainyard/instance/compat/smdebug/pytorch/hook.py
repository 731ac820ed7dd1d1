"""The hook for PyTorch. A step is a call of a registered model, whatever the optimizer does."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from trainyard.instance.hook import attachment
from trainyard.instance.hook.contract import HookContext
from trainyard.instance.hook.recording import HookRecording

from ..core.collection import DEFAULT_PYTORCH_COLLECTIONS, CollectionKeys
from ..core.hook import BaseHook
from ..core.utils import make_numpy_array
from ..exceptions import SMDebugError
from .capture import ModelCapture
from .collection import Collection, CollectionManager


class Hook(BaseHook):
    """Saves tensors of registered models. It replaces a hook that a job has attached."""

    default_collections = DEFAULT_PYTORCH_COLLECTIONS
    # A list, as in smdebug.
    default_include_collections = [CollectionKeys.LOSSES]  # noqa: RUF012
    manager_class = CollectionManager

    def __init__(self, out_dir: str | None = None, *arguments: Any, **options: Any) -> None:
        super().__init__(out_dir, *arguments, **options)
        self.has_registered_module = self.has_registered_loss_module = False
        self._capture = ModelCapture(self._begin_step, self._observe_tensors)
        self._attached_context = attachment.take_over()

    def register_module(self, module: nn.Module) -> None:
        """Save tensors of a model. From now on, each of its calls is a step."""
        if not isinstance(module, nn.Module):
            raise SMDebugError(f"{module!r} is not a torch module, but a {type(module).__name__}.")
        assert not self._capture.has(module), f"The module {type(module).__name__} is already registered."
        self._capture.register(module)
        self.has_registered_module = True

    def register_hook(self, module: nn.Module) -> None:
        self.register_module(module)

    def register_loss(self, loss_module: nn.Module) -> None:
        """Save the output of a loss, whether it is one of torch's or not."""
        if not isinstance(loss_module, nn.Module):
            raise SMDebugError(f"{loss_module!r} is not a torch module. Record other losses with record_tensor_value.")
        self._capture.register_loss(loss_module)
        name = loss_module._get_name()
        # The collection's regex would miss a custom loss whose name lacks "loss".
        if "oss" not in name:
            self.get_collection(CollectionKeys.LOSSES).include(f"^{name}_output_")
        self.has_registered_loss_module = True

    def record_tensor_value(self, tensor_name: str, tensor_value: torch.Tensor) -> None:
        """Record the result of a function such as F.mse_loss, which has no module, as `<name>_output_0`."""
        assert isinstance(tensor_value, torch.Tensor), (
            f"{tensor_name} is a {type(tensor_value).__name__}, not a tensor."
        )
        self._capture.record(tensor_name, tensor_value)

    def close(self) -> None:
        super().close()
        self._capture.close()

    def _prepare(self) -> None:
        for collection in self.get_collections().values():
            if isinstance(collection, Collection):
                collection.include_modules(self._capture.names)
        super()._prepare()

    def _finish_step(self, recording: HookRecording) -> None:
        self._capture.finish()
        super()._finish_step(recording)

    def _context(self) -> HookContext:
        return self._attached_context

    @staticmethod
    def _make_numpy_array(value: Any) -> NDArray[Any]:
        if not isinstance(value, torch.Tensor):
            return make_numpy_array(value)
        plain = value.detach().cpu()
        array: NDArray[Any] = (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()
        return array
