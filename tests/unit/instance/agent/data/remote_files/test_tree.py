import pytest

from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.data.remote_files.fuse import ROOT_NODE
from trainyard.instance.agent.data.remote_files.tree import ChannelTree, PathTaken

BUCKET = BucketRef("111122223333", "data")


def tree_of(*paths: str) -> ChannelTree:
    tree = ChannelTree()
    for path in paths:
        tree.add(path, Location(BUCKET, path), size=len(path), etag="e")
    return tree


def test_paths_become_folders_and_files() -> None:
    tree = tree_of("b", "deep/er/a", "deep/c")
    assert [(name, node.is_folder) for name, node in tree.children(ROOT_NODE, 0)] == [(b"b", False), (b"deep", True)]
    deep = tree.child(ROOT_NODE, b"deep")
    assert deep is not None
    assert [name for name, _ in tree.children(deep.number, 0)] == [b"er", b"c"]
    found = tree.child(deep.number, b"c")
    assert found is not None
    assert (found.size, found.is_folder) == (len("deep/c"), False)
    file = tree.file(found.number)
    assert file is not None
    assert file.where == Location(BUCKET, "deep/c")
    assert tree.file(deep.number) is None


def test_a_missing_name_is_not_found() -> None:
    tree = tree_of("a")
    assert tree.child(ROOT_NODE, b"b") is None
    file = tree.child(ROOT_NODE, b"a")
    assert file is not None
    assert tree.child(file.number, b"a") is None
    assert list(tree.children(file.number, 0)) == []


def test_a_listing_continues_from_any_position() -> None:
    tree = tree_of(*(f"{number:05}" for number in range(3000)))
    assert [name for name, _ in tree.children(ROOT_NODE, 2997)] == [b"02997", b"02998", b"02999"]
    assert list(tree.children(ROOT_NODE, 3000)) == []


def test_the_object_of_a_folder_makes_an_empty_one() -> None:
    tree = tree_of("empty/")
    folder = tree.child(ROOT_NODE, b"empty")
    assert folder is not None
    assert folder.is_folder
    assert tree.files == []


def test_files_count_in_the_order_in_which_they_come() -> None:
    tree = tree_of("z", "a/b", "a/a")
    assert [(file.number, file.where.key) for file in tree.files] == [(0, "z"), (1, "a/b"), (2, "a/a")]
    assert tree.size_bytes == len("z") + len("a/b") + len("a/a")


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a", "a/")])
def test_two_objects_cannot_have_one_path(paths: tuple[str, str]) -> None:
    with pytest.raises(PathTaken):
        tree_of(*paths)
