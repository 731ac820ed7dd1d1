"""Untrusted archives: unpacked completely, or refused without touching anything outside their folder."""

import contextlib
import gzip
import io
import os
import random
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.agent.program.archive import ArchiveLimits, UnsafeArchive, extract_tar_gz
from trainyard.instance.agent.program.tar_stream import MalformedTar

Entry = tuple[tarfile.TarInfo, bytes]


def entry(name: str, data: bytes = b"", **members: object) -> Entry:
    made = tarfile.TarInfo(name)
    made.size = len(data)
    for member, value in members.items():
        setattr(made, member, value)
    return made, data


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Entry:
    return entry(name, type=kind, linkname=target)


def folder(name: str) -> Entry:
    return entry(name, type=tarfile.DIRTYPE, mode=0o755)


def packed(*entries: Entry, form: int = tarfile.PAX_FORMAT) -> io.BytesIO:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz", format=form) as tar:
        for made, data in entries:
            tar.addfile(made, io.BytesIO(data))
    archive.seek(0)
    return archive


def header(name: str, *, kind: bytes = b"0", size: bytes = b"00000000000") -> bytes:
    """A header block that no library would write."""
    block = bytearray(512)
    block[:100] = name.encode().ljust(100, b"\0")
    block[100:108] = b"0000644\0"
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def squeezed(data: bytes) -> io.BytesIO:
    return io.BytesIO(gzip.compress(data))


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A folder to unpack into. Nothing beside it may change, whatever a test does."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    inside = tmp_path / "code"
    inside.mkdir()
    yield inside
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "outside"]
    assert files_of(outside) == {"kept": b"kept"}
    assert not Path("/trainyard-was-here").exists()


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_and_folders_come_out_as_they_went_in(code: Path, form: int) -> None:
    entries = [
        folder("package"),
        entry("package/module.py", b"x = 1\n"),
        entry("./train.py", b"print()\n"),
        entry("deep/er/data.bin", bytes(range(256)) * 5000),
        entry("empty"),
    ]
    extract_tar_gz(packed(*entries, form=form), code)
    assert files_of(code) == {
        "deep/er/data.bin": bytes(range(256)) * 5000,
        "empty": b"",
        "package/module.py": b"x = 1\n",
        "train.py": b"print()\n",
    }


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_names_in_any_script_come_out(code: Path, form: int) -> None:
    names = ["/".join(["a-long-folder-name"] * 10) + "/file.py", "été/данные.txt", "x" * 150]
    extract_tar_gz(packed(*(entry(name, b"1") for name in names), form=form), code)
    assert sorted(files_of(code)) == sorted(names)


def test_an_archive_of_the_command_line_comes_out(code: Path, tmp_path: Path) -> None:
    source = code / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.py").write_text("1")
    archive = code / "a.tar.gz"
    assert os.system(f"tar -C {source} -czf {archive} .") == 0
    target = code / "target"
    target.mkdir()
    with archive.open("rb") as file:
        extract_tar_gz(file, target)
    assert files_of(target) == {"sub/a.py": b"1"}


def test_a_file_keeps_its_executable_bit_and_no_other_power(code: Path) -> None:
    extract_tar_gz(packed(entry("run.sh", b"", mode=0o4755), entry("a.py", b"", mode=0o600), folder("d")), code)
    assert stat.S_IMODE((code / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((code / "a.py").stat().st_mode) == 0o644


def test_a_later_file_of_the_same_name_wins(code: Path) -> None:
    extract_tar_gz(packed(entry("a", b"old"), entry("a", b"new")), code)
    assert files_of(code) == {"a": b"new"}


def test_links_that_stay_inside_are_made(code: Path) -> None:
    entries = [entry("lib/real.py", b"1"), link("lib/soft.py", "real.py"), link("up.py", "lib/../lib/real.py")]
    extract_tar_gz(packed(*entries, link("hard.py", "lib/real.py", tarfile.LNKTYPE)), code)
    assert (code / "lib" / "soft.py").is_symlink()
    assert {name: data for name, data in files_of(code).items() if data == b"1"}.keys() == {
        "hard.py",
        "lib/real.py",
        "lib/soft.py",
        "up.py",
    }


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ([entry("../outside/kept", b"gone")], "which is outside it"),
        ([entry("a/../../outside/kept", b"gone")], "which is outside it"),
        ([entry("/trainyard-was-here", b"x")], "which is outside it"),
        ([entry("//trainyard-was-here", b"x")], "which is outside it"),
        ([folder("../outside/new")], "which is outside it"),
        ([link("a", "../outside")], "a link out of it"),
        ([link("a", "/etc/passwd")], "a link out of it"),
        ([link("d/a", "../../outside/kept")], "a link out of it"),
        ([link("a", "")], "a link out of it"),
        ([link("a", "../outside/kept", tarfile.LNKTYPE)], "which is outside it"),
        ([link("a", "/etc/passwd", tarfile.LNKTYPE)], "which is outside it"),
        ([link("a", "missing", tarfile.LNKTYPE)], "which is not a file"),
        ([entry("a", b"1"), link("a", "a", tarfile.LNKTYPE)], "which is not a file"),
        ([link("a", "."), entry("a/b", b"x")], "lies behind the link"),
        ([link("a", "b"), folder("a/c")], "lies behind the link"),
        ([link("d", "."), link("e", "d/d/../../outside")], "a link out of it"),
        ([link("d", "."), link("e", "d/d/d/../..")], "a link out of it"),
        ([link("s", "t"), link("h", "s", tarfile.LNKTYPE)], "which is not a file"),
        ([entry("dev", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "is a special file"),
        ([entry("dev", type=tarfile.BLKTYPE, devmajor=8, devminor=0)], "is a special file"),
        ([entry("pipe", type=tarfile.FIFOTYPE)], "is a special file"),
        ([entry("odd", type=b"Z")], "is a special file"),
        ([entry("a", b"1"), entry("a/b", b"2")], "both a file and a folder"),
        ([folder("a"), entry("a", b"2")], "both a folder and a file"),
        ([entry("x" * 300, b"")], "too long a name"),
        ([entry("/".join("d" * 80), b"")], "nested too deeply"),
    ],
)
def test_entries_that_would_reach_outside_or_are_special_files_are_refused(
    code: Path, entries: list[Entry], complaint: str
) -> None:
    with pytest.raises(UnsafeArchive, match=complaint):
        extract_tar_gz(packed(*entries), code)


def pax(records: dict[str, bytes], *, kind: bytes = b"x") -> bytes:
    """An extended header with unchecked records."""
    body = b""
    for keyword, value in records.items():
        record = b" " + keyword.encode() + b"=" + value + b"\n"
        length = len(record) + 1
        while len(str(length)) + len(record) != length:
            length += 1
        body += str(length).encode() + record
    return header("pax", kind=kind, size=b"%011o" % len(body)) + body.ljust(-(-len(body) // 512) * 512, b"\0")


LONG_NAME = header("././@LongLink", kind=b"L", size=b"00000000020")


@pytest.mark.parametrize(
    ("blocks", "complaint"),
    [
        (pax({"path": b"../outside/kept"}) + header("harmless"), "which is outside it"),
        (pax({"path": b"/trainyard-was-here"}) + header("harmless"), "which is outside it"),
        (pax({"path": b"ok\0/../../outside/kept"}) + header("harmless"), "which is outside it"),
        (pax({"linkpath": b"../outside"}) + header("a", kind=b"2"), "a link out of it"),
        (pax({"linkpath": b"../outside/kept"}) + header("a", kind=b"1"), "which is outside it"),
        (pax({"size": b"9" * 30}) + header("a"), "more than"),
        (pax({"size": b"9" * 6000}) + header("a"), "a size in it is not a number"),
        (pax({"size": "\u0664".encode()}) + header("a"), "a size in it is not a number"),
        (LONG_NAME + b"../outside/kept".ljust(512, b"\0") + header("a"), "which is outside it"),
        (header("a", kind=b"S"), "is a special file"),
        (header("a", kind=b"D"), "is a special file"),
        (header("a", kind=b"V"), "is a special file"),
        (header("a", kind=b"M"), "is a special file"),
    ],
)
def test_what_extended_headers_say_is_checked_like_the_rest(code: Path, blocks: bytes, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        extract_tar_gz(squeezed(blocks + bytes(1024)), code)


def test_a_global_header_names_no_file(code: Path) -> None:
    blocks = pax({"path": b"../outside/kept"}, kind=b"g") + header("a") + header("b")
    extract_tar_gz(squeezed(blocks + bytes(1024)), code)
    assert files_of(code) == {"a": b"", "b": b""}


def test_names_that_only_look_alike_or_odd_are_different_files(code: Path) -> None:
    names = ["a", "A", "\u00e9", "e\u0301", "...", "..a", "a\\..\\b", "C:evil", "new\nline", "odd\udcff", " ", "-rf"]
    extract_tar_gz(packed(*(entry(name, name.encode("utf-8", "surrogateescape")) for name in names)), code)
    assert files_of(code) == {name: name.encode("utf-8", "surrogateescape") for name in names}


def test_what_comes_after_the_end_is_not_looked_at(code: Path) -> None:
    whole = packed(entry("a", b"1")).getvalue()
    more = packed(entry("../outside/kept", b"gone")).getvalue()
    extract_tar_gz(io.BytesIO(whole + b"garbage"), code)
    extract_tar_gz(io.BytesIO(whole + more), code)
    assert files_of(code) == {"a": b"1"}


def test_an_archive_in_several_gzip_members_is_one(code: Path) -> None:
    plain = gzip.decompress(packed(entry("a", b"1" * 2000)).getvalue())
    extract_tar_gz(io.BytesIO(gzip.compress(plain[:700]) + gzip.compress(plain[700:])), code)
    assert files_of(code) == {"a": b"1" * 2000}


def test_a_link_cannot_be_exchanged_for_a_folder_on_the_way(code: Path) -> None:
    """The known flaw of extractors that check first and write later: a path is safe, then a link replaces it."""
    entries = [folder("a"), entry("a/b", b"1"), link("a", "../outside"), entry("a/kept", b"gone")]
    with pytest.raises(UnsafeArchive):
        extract_tar_gz(packed(*entries), code)


def test_a_bomb_is_refused_before_it_is_unpacked(code: Path) -> None:
    bomb = packed(entry("zeros", bytes(5_000_000)))
    assert len(bomb.getvalue()) < 10_000
    with pytest.raises(UnsafeArchive, match="more than 100000 bytes"):
        extract_tar_gz(bomb, code, ArchiveLimits(total_bytes=100_000))
    assert files_of(code) == {}


def test_many_small_files_that_are_too_much_together_are_refused(code: Path) -> None:
    with pytest.raises(UnsafeArchive, match="more than 1000 bytes"):
        extract_tar_gz(packed(*(entry(str(n), bytes(100)) for n in range(11))), code, ArchiveLimits(total_bytes=1000))


def test_too_many_entries_are_refused(code: Path) -> None:
    entries = [entry(f"f{number}") for number in range(101)]
    with pytest.raises(UnsafeArchive, match="more than 100 entries"):
        extract_tar_gz(packed(*entries), code, ArchiveLimits(entries=100))


def test_an_archive_of_nothing_but_headers_comes_to_an_end(code: Path) -> None:
    record = b"20 path=aaaaaaaaaaa\n"
    endless = (header("x", kind=b"x", size=b"%011o" % len(record)) + record.ljust(512, b"\0")) * 5000
    with pytest.raises(UnsafeArchive, match="larger than"):
        extract_tar_gz(squeezed(endless), code, ArchiveLimits(total_bytes=1 << 20, entries=100))


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_a_header_that_claims_gigabytes_is_not_read_into_memory(code: Path, kind: bytes) -> None:
    huge = header("x", kind=kind, size=b"%011o" % (1 << 32)) + bytes(1 << 20)
    with pytest.raises(MalformedTar, match="the limit is 1048576"):
        extract_tar_gz(squeezed(huge), code)


def test_a_size_in_binary_is_understood(code: Path) -> None:
    size = b"\x80" + (3).to_bytes(11, "big")
    extract_tar_gz(squeezed(header("a", size=size) + b"abc".ljust(512, b"\0") + bytes(1024)), code)
    assert files_of(code) == {"a": b"abc"}


@pytest.mark.parametrize(
    "data",
    [
        header("a", size=b"\xff" * 12),
        header("a", size=b"-0000000001"),
        header("a", size=b"00000000009"),
        b"not a tar archive at all".ljust(512, b"."),
        header("a", size=b"00000001000"),
        header("a")[:300],
        header("x", kind=b"x", size=b"00000000024") + b"999 path=aaaaaaaaaaa".ljust(512, b"\0"),
        header("x", kind=b"x", size=b"00000000024") + b"0 path=aaaaaaaaaaaaa".ljust(512, b"\0"),
        header("x", kind=b"x", size=b"00000000024") + b"no records in here..".ljust(512, b"\0"),
        header("x", kind=b"x", size=b"00000000015") + b"13 size=-512\n".ljust(512, b"\0") + header("a"),
        header("x", kind=b"x", size=b"00000000031") + b"25 GNU.sparse.major=1.00\n".ljust(512, b"\0") + header("a"),
    ],
)
def test_an_incomplete_archive_is_refused(code: Path, data: bytes) -> None:
    with pytest.raises(MalformedTar):
        extract_tar_gz(squeezed(data), code)


@pytest.mark.parametrize("data", [b"plain text", b"\x1f\x8b", gzip.compress(bytes(4096), mtime=0)[:20]])
def test_incomplete_gzip_data_is_refused(code: Path, data: bytes) -> None:
    with pytest.raises(MalformedTar):
        extract_tar_gz(io.BytesIO(data), code)


def test_an_empty_archive_is_complete(code: Path) -> None:
    extract_tar_gz(packed(), code)
    assert files_of(code) == {}


def test_an_archive_cut_anywhere_is_refused_or_gives_only_whole_entries(code: Path) -> None:
    whole = packed(*(entry(f"f{number}", os.urandom(700)) for number in range(5))).getvalue()
    for length in range(1, len(whole), 97):
        target = code / str(length)
        target.mkdir()
        with pytest.raises(MalformedTar):
            extract_tar_gz(io.BytesIO(whole[:length]), target)


def test_random_headers_never_do_more_than_raise_our_errors(code: Path) -> None:
    chance = random.Random(7)
    entries = [entry(f"d/f{number}", b"data") for number in range(4)]
    plain = gzip.decompress(packed(*entries, form=tarfile.USTAR_FORMAT).getvalue())
    for number in range(300):
        damaged = bytearray(plain)
        for start in range(0, 4096, 1024):
            for _ in range(chance.randint(0, 4)):
                damaged[start + chance.choice([*range(20), *range(100, 140), 156, *range(157, 170)])] = (
                    chance.randrange(256)
                )
            sign(damaged, start)
        target = code / str(number)
        target.mkdir()
        with contextlib.suppress(InvalidRequest):
            extract_tar_gz(squeezed(bytes(damaged)), target)


def sign(archive: bytearray, start: int) -> None:
    """Correct the checksum of a header; otherwise nothing after it is read."""
    archive[start + 148 : start + 156] = b" " * 8
    archive[start + 148 : start + 156] = f"{sum(archive[start : start + 512]):06o}\0 ".encode()
