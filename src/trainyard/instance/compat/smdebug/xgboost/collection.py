"""The collections of a hook for XGBoost."""

from trainyard.instance.hook.xgboost import XGBOOST

from ..core.collection_manager import CollectionManager as BaseCollectionManager


class CollectionManager(BaseCollectionManager):
    """The collections that the adapter fills. The collection "all" stays empty unless everything is to be saved."""

    def _register_default_collections(self) -> None:
        for collection in XGBOOST.collections:
            regexes = [] if collection.name == "all" else list(collection.include_regex)
            self.get(collection.name).include(regexes)
