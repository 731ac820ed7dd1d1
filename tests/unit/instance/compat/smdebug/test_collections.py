"""Collections as scripts create and change them."""

import pytest
from smdebug import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdebug.core.collection import Collection
from smdebug.core.collection_manager import CollectionManager
from smdebug.exceptions import SMDebugError, SMDebugTypeError


def test_regexes_are_included_one_by_one_and_in_lists() -> None:
    collection = Collection("mine", include_regex=["a"])
    collection.include("b")
    collection.include(["c", "d"])
    assert collection.include_regex == ["a", "b", "c", "d"]
    with pytest.raises(SMDebugTypeError, match="cannot be included"):
        collection.include(3)


def test_tensors_are_named_and_unnamed() -> None:
    collection = Collection("mine", tensor_names=["one"])
    collection.add_tensor_name("two")
    collection.remove_tensor_name("one")
    collection.remove_tensor_name("never there")
    assert collection.tensor_names == {"two"}
    assert collection.has_tensor_name("two")
    with pytest.raises(SMDebugTypeError, match="list or a set"):
        collection.tensor_names = "two"


def test_configs_are_checked_when_they_are_set() -> None:
    collection = Collection("mine")
    collection.save_config = {modes.EVAL: SaveConfigMode(save_interval=2)}
    assert isinstance(collection.save_config, SaveConfig)
    assert collection.save_config.get_save_config(modes.EVAL).save_interval == 2
    with pytest.raises(SMDebugTypeError, match="must be a SaveConfig"):
        collection.save_config = 3
    with pytest.raises(SMDebugTypeError, match="must be a ReductionConfig"):
        collection.reduction_config = "min"


def test_collections_with_equal_settings_are_equal() -> None:
    one, other = (Collection("mine", ["a"], ["t"], ReductionConfig(["min"]), SaveConfig(save_interval=2)) for _ in "12")
    assert one == other
    assert hash(one) == hash(other) == hash("mine")
    other.save_histogram = False
    assert one != other
    assert one != "mine"


def test_json_round_trip() -> None:
    collection = Collection("mine", ["a"], {"t"}, ReductionConfig(norms=["l2"]), SaveConfig(save_interval=2), False)
    assert Collection.from_json(collection.to_json()) == collection
    assert Collection.from_json(Collection("bare").to_json()) == Collection("bare")


def test_a_collection_is_created_on_first_use() -> None:
    manager = CollectionManager()
    mine = manager.get("mine")
    assert manager.get("mine") is mine
    with pytest.raises(SMDebugError, match='no collection "other"'):
        manager.get("other", create=False)
    manager.add(Collection("mine", ["a"]))
    assert manager.get("mine").include_regex == ["a"]
    with pytest.raises(SMDebugTypeError):
        manager.add(3)


def test_the_keys_are_the_names_that_collections_have() -> None:
    assert (CollectionKeys.WEIGHTS, CollectionKeys.LOSSES, CollectionKeys.DEFAULT) == ("weights", "losses", "default")
