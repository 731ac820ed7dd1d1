"""The collections of a hook or a trial, by name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..exceptions import SMDebugError, SMDebugTypeError
from .collection import Collection


class CollectionManager:
    """Holds collections, and creates them on first use."""

    def __init__(self, collections: dict[str, Collection] | None = None, create_default: bool = False) -> None:
        self.collections = {} if collections is None else collections
        self._workers = 1
        if create_default:
            self._register_default_collections()

    def create_collection(self, name: str, cls: type[Collection] = Collection) -> None:
        if name not in self.collections:
            self.collections[name] = cls(name)

    def get_collections(self) -> dict[str, Collection]:
        return self.collections

    def add(self, arg: str | Collection) -> None:
        """Create a collection of this name if there is none, or add this one, replacing any of its name."""
        if isinstance(arg, str):
            self.create_collection(arg)
        elif isinstance(arg, Collection):
            self.collections[arg.name] = arg
        else:
            raise SMDebugTypeError(f"{arg!r} is neither a collection nor the name of one.")

    def get(self, name: str, create: bool = True) -> Collection:
        if name not in self.collections:
            if not create:
                raise SMDebugError(
                    f'There is no collection "{name}"; there are {", ".join(self.collections) or "none"}.'
                )
            self.create_collection(name)
        return self.collections[name]

    def get_num_workers(self) -> int:
        return self._workers

    def set_num_workers(self, num_workers: int) -> None:
        self._workers = int(num_workers)

    def to_json_dict(self) -> dict[str, Any]:
        collections = {name: collection.to_json_dict() for name, collection in self.collections.items()}
        return {"collections": collections, "_meta": {"num_workers": self._workers}}

    @classmethod
    def load(cls, filename: str, collection_class: type[Collection] = Collection) -> "CollectionManager":
        return cls.load_from_string(Path(filename).read_text(), collection_class)

    @classmethod
    def load_from_string(cls, s: str, collection_class: type[Collection] = Collection) -> "CollectionManager":
        content: Mapping[str, Any] = json.loads(s)
        manager = CollectionManager()
        for each in content["collections"].values():
            manager.add(collection_class.from_dict(each))
        manager.set_num_workers(content["_meta"]["num_workers"])
        return manager

    def _register_default_collections(self) -> None:
        """Create the framework's collections, in a subclass."""

    def __eq__(self, other: object) -> bool:
        return self.collections == other.collections if isinstance(other, CollectionManager) else NotImplemented

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<class CollectionManager: collection_names={list(self.collections)}>"
