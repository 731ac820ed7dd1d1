"""The hook for Keras: a callback, for which a step is a batch."""

from typing import Any

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook import attaching
from trainyard.instance.hook.contract import Audience
from trainyard.instance.hook.keras import KERAS, BatchCallback
from trainyard.instance.hook.recording import Recording

from ..core.collection import DEFAULT_TF_COLLECTIONS, CollectionKeys
from ..core.collection_manager import CollectionManager as BaseCollectionManager
from ..core.hook import BaseHook
from ..core.modes import to_key


class CollectionManager(BaseCollectionManager):
    """Those that the adapter fills; all tensors are only in one of their own when all are asked for."""

    def _register_default_collections(self) -> None:
        for name in sorted(DEFAULT_TF_COLLECTIONS):
            self.create_collection(name)
        for collection in KERAS.collections:
            if collection.name != CollectionKeys.ALL:
                self.get(collection.name).include(list(collection.include_regex))


class KerasHook(BaseHook, BatchCallback):
    """Saves tensors of a model that is trained by `fit`: `model.fit(…, callbacks=[hook])`.

    Modes are those of the calls of the model. What happens inside of a compiled function is not seen: gradients are
    there on the torch backend alone.
    """

    default_collections = DEFAULT_TF_COLLECTIONS
    default_include_collections = sorted(KERAS.included)
    manager_class = CollectionManager

    def __init__(self, out_dir: str | None = None, *arguments: Any, **options: Any) -> None:
        BatchCallback.__init__(self)
        BaseHook.__init__(self, out_dir, *arguments, **options)
        self._followers = attaching.take_over("keras")

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """The optimizer as it is: gradients are seen where they can be without it."""
        return optimizer

    def wrap_tape(self, tape: Any) -> Any:
        """The tape as it is: what a loop of one's own computes is told by save_tensor and save_scalar."""
        self.logger.warning("Gradients of a GradientTape are not seen; tell them by hook.save_tensor.")
        return tape

    def open_step(self, mode: Mode) -> Recording | None:
        self.set_mode(to_key(mode))
        recording = self._begin_step()
        self._give_tensors()
        return recording

    def _audience(self) -> Audience:
        return self._followers
