import gzip
import io
import tarfile
import zipfile

import pytest

from trainyard.server.dashboard.pages.files.archives import (
    MAX_MEMBERS,
    NoSuchMember,
    archive_kind,
    decompress_start,
    list_archive,
    open_member,
    read_start,
)
from trainyard.server.dashboard.pages.files.object_file import ReadingLimit

MIB = 1024 * 1024


def tar_of(files: dict[str, bytes], *, mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(files: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


FILES = {"a.txt": b"first", "deep/b.bin": bytes(3 * MIB)}
ARCHIVES = {"gzip": tar_of(FILES), "tar": tar_of(FILES, mode="w"), "zip": zip_of(FILES)}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_members_are_listed_and_read(kind: str) -> None:
    archive = ARCHIVES[kind]
    assert archive_kind(archive[:512]) == kind
    contents = list_archive(io.BytesIO(archive), kind)
    assert [(each.name, each.size, each.kind) for each in contents.members] == [
        ("a.txt", 5, "file"),
        ("deep/b.bin", 3 * MIB, "file"),
    ]
    assert contents.note == ""
    with open_member(io.BytesIO(archive), kind, "deep/b.bin") as opened:
        assert read_start(opened, 2 * MIB) == bytes(2 * MIB)
    with pytest.raises(NoSuchMember), open_member(io.BytesIO(archive), kind, "../a.txt"):
        pass


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_damaged_archive_is_listed_as_far_as_it_goes(kind: str) -> None:
    archive = ARCHIVES[kind]
    contents = list_archive(io.BytesIO(archive[: len(archive) * 2 // 3]), kind)
    assert "damaged" in contents.note
    assert len(contents.members) <= 2


def test_a_long_archive_is_cut() -> None:
    archive = tar_of({f"{number}": b"" for number in range(MAX_MEMBERS + 1)})
    contents = list_archive(io.BytesIO(archive), "gzip")
    assert len(contents.members) == MAX_MEMBERS
    assert "Only the first" in contents.note


def test_a_header_that_would_fill_the_memory_is_not_read() -> None:
    """A header of PAX may have any size, and its zeros compress a thousandfold."""
    entry = tarfile.TarInfo("huge")
    entry.type, entry.size = tarfile.XHDTYPE, 64 * MIB
    archive = gzip.compress(entry.tobuf() + bytes(64 * MIB))
    contents = list_archive(io.BytesIO(archive), "gzip")
    assert contents.members == []
    assert "too large" in contents.note


def test_zip_members_of_other_methods_are_not_read() -> None:
    archive = zip_of(FILES, method=zipfile.ZIP_LZMA)
    with pytest.raises(NoSuchMember, match="download the archive"), open_member(io.BytesIO(archive), "zip", "a.txt"):
        pass


def test_more_than_the_limit_of_a_member_is_not_read() -> None:
    archive = tar_of({"zeros": bytes(64 * MIB)})
    with pytest.raises(ReadingLimit), open_member(io.BytesIO(archive), "gzip", "zeros") as opened:
        read_start(opened, 64 * MIB)


def test_the_start_of_a_compressed_file_is_read() -> None:
    packed = gzip.compress(b"line\n" * 100_000)
    assert decompress_start(io.BytesIO(packed), 10) == b"line\nline\n"
    assert decompress_start(io.BytesIO(packed[:5]), 10) == b""
