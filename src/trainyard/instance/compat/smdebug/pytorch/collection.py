"""Collections that modules can be added to."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..core.collection import DEFAULT_PYTORCH_COLLECTIONS, CollectionKeys
from ..core.collection import Collection as BaseCollection
from ..core.collection_manager import CollectionManager as BaseCollectionManager


class Collection(BaseCollection):
    """A collection to which modules can be added. Their names are looked up at the first step."""

    def __init__(self, name: str, *arguments: Any, **options: Any) -> None:
        super().__init__(name, *arguments, **options)
        self.modules: dict[nn.Module, tuple[bool, bool]] = {}

    def add_module_tensors(self, module: nn.Module, inputs: bool = False, outputs: bool = True) -> None:
        self.modules[module] = (inputs, outputs)

    def include_modules(self, names: Mapping[nn.Module, str]) -> None:
        """Include the inputs and outputs of the added modules that have a name."""
        for module, (inputs, outputs) in self.modules.items():
            name = names.get(module)
            regexes = [f"{name}_input_"] * inputs + [f"{name}_output_"] * outputs
            self.include([regex for regex in regexes if name is not None and regex not in self.include_regex])


class CollectionManager(BaseCollectionManager):
    """The collections of a hook for PyTorch."""

    def create_collection(self, name: str, cls: type[BaseCollection] = Collection) -> None:
        super().create_collection(name, cls)

    def _register_default_collections(self) -> None:
        for name in sorted(DEFAULT_PYTORCH_COLLECTIONS):
            self.create_collection(name)
        self.get(CollectionKeys.WEIGHTS).include("^(?!gradient).*weight")
        self.get(CollectionKeys.BIASES).include("^(?!gradient).*bias")
        self.get(CollectionKeys.GRADIENTS).include("^gradient")
        self.get(CollectionKeys.LOSSES).include("[Ll]oss_(?!input).*output")
