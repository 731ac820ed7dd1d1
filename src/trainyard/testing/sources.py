"""The contract of byte sources. A test module provides the fixture `place`, which stores bytes under names."""

from collections.abc import Callable, Mapping

import pytest

from trainyard.foundation.errors import NotFound
from trainyard.foundation.sources import ByteSource, SourceEntry

Place = Callable[[Mapping[str, bytes]], ByteSource]

SAMPLE = {
    "b.json": b"{}",
    "a.json": b"[1]",
    "steps/w_0/001.arrows": b"0123456789",
    "steps/w_0/002.arrows": b"",
    "steps/w_0/deep/003.arrows": b"x",
    "steps/w_1/001.arrows": b"other",
}


class ByteSourceContract:
    def test_a_folder_lists_its_direct_entries_by_name(self, place: Place) -> None:
        source = place(SAMPLE)
        assert list(source.entries()) == [SourceEntry("a.json", 3), SourceEntry("b.json", 2)]
        assert list(source.entries("steps/w_0")) == [SourceEntry("001.arrows", 10), SourceEntry("002.arrows", 0)]

    def test_a_listing_can_start_after_a_name(self, place: Place) -> None:
        source = place(SAMPLE)
        assert [entry.name for entry in source.entries("steps/w_0", after="001.arrows")] == ["002.arrows"]
        assert [entry.name for entry in source.entries("steps/w_0", after="0015")] == ["002.arrows"]
        assert list(source.entries("steps/w_0", after="002.arrows")) == []

    def test_folders_are_listed_apart_from_files(self, place: Place) -> None:
        source = place(SAMPLE)
        assert list(source.folders()) == ["steps"]
        assert list(source.folders("steps")) == ["w_0", "w_1"]
        assert list(source.folders("steps", after="w_0")) == ["w_1"]

    def test_a_missing_folder_is_empty(self, place: Place) -> None:
        source = place(SAMPLE)
        assert list(source.entries("values")) == []
        assert list(source.folders("values")) == []

    def test_bytes_are_read_whole_and_in_part(self, place: Place) -> None:
        source = place(SAMPLE)
        assert source.read("steps/w_0/001.arrows") == b"0123456789"
        assert source.read("steps/w_0/001.arrows", start=7) == b"789"
        assert source.read("steps/w_0/001.arrows", start=2, size=3) == b"234"
        assert source.read("steps/w_0/001.arrows", start=8, size=100) == b"89"
        assert source.read("steps/w_0/001.arrows", start=10) == b""
        assert source.read("steps/w_0/002.arrows") == b""
        assert source.size("steps/w_0/001.arrows") == 10

    def test_a_missing_name_is_not_found(self, place: Place) -> None:
        source = place(SAMPLE)
        with pytest.raises(NotFound):
            source.read("steps/w_0/009.arrows")
        with pytest.raises(NotFound):
            source.size("steps/w_0/009.arrows")

    def test_a_replaced_file_is_read_in_its_new_version(self, place: Place) -> None:
        source = place(SAMPLE)
        place({"steps/w_0/001.arrows": b"0123456789abc"})
        assert source.size("steps/w_0/001.arrows") == 13
        assert source.read("steps/w_0/001.arrows", start=10) == b"abc"
