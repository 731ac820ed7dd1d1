"""The hook for Keras: a callback. A step is a batch."""

from typing import Any

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook import attachment
from trainyard.instance.hook.contract import HookContext
from trainyard.instance.hook.keras import KERAS, BatchCallback
from trainyard.instance.hook.recording import HookRecording

from ..core.collection import DEFAULT_TF_COLLECTIONS, CollectionKeys
from ..core.collection_manager import CollectionManager as BaseCollectionManager
from ..core.hook import BaseHook
from ..core.modes import to_key


class CollectionManager(BaseCollectionManager):
    """The collections that the adapter fills. The collection "all" stays empty unless everything is to be saved."""

    def _register_default_collections(self) -> None:
        for name in sorted(DEFAULT_TF_COLLECTIONS):
            self.create_collection(name)
        for collection in KERAS.collections:
            if collection.name != CollectionKeys.ALL:
                self.get(collection.name).include(list(collection.include_regex))


class KerasHook(BaseHook, BatchCallback):
    """Saves tensors of a model that `fit` trains: `model.fit(…, callbacks=[hook])`.

    Calling `fit`, `evaluate` or `predict` sets the mode. Nothing inside a compiled function can be observed, so
    gradients exist on the torch backend only.
    """

    default_collections = DEFAULT_TF_COLLECTIONS
    default_include_collections = sorted(KERAS.included)
    manager_class = CollectionManager

    def __init__(self, out_dir: str | None = None, *arguments: Any, **options: Any) -> None:
        BatchCallback.__init__(self)
        BaseHook.__init__(self, out_dir, *arguments, **options)
        self._attached_context = attachment.take_over("keras")

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Return the optimizer unchanged: observing gradients does not need it."""
        return optimizer

    def wrap_tape(self, tape: Any) -> Any:
        """Return the tape unchanged: a custom loop saves its values with save_tensor and save_scalar."""
        self.logger.warning("Gradients of a GradientTape are not observed; save them with hook.save_tensor.")
        return tape

    def open_step(self, mode: Mode) -> HookRecording | None:
        self.set_mode(to_key(mode))
        recording = self._begin_step()
        self._observe_tensors()
        return recording

    def _context(self) -> HookContext:
        return self._attached_context
