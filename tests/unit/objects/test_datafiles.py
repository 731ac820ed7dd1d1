import errno
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt, Unavailable
from trainyard.objects.datafiles import DataFileMissing, DataFiles, IncomingFile, data_path, hold_files, translate_error

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def files(root: Path) -> Iterator[DataFiles]:
    with closing(DataFiles(root)) as opened:
        yield opened


def settled(files: DataFiles, body: bytes) -> str:
    incoming_file = files.create()
    incoming_file.write(body)
    incoming_file.settle()
    incoming_file.release()
    return incoming_file.data


def body_of(files: DataFiles, data: str) -> bytes:
    return b"".join(files.chunks(data))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def refusing(number: int) -> Callable[..., int]:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


class TestExplanations:
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
    def test_a_full_disk_and_a_full_quota_say_how_to_get_space(self, number: int) -> None:
        told = str(translate_error(OSError(number, "full", "/data/x")))
        assert told == "There is no space left for /data/x. Free some (`trainyard gc` may help), then try again."

    def test_a_read_only_disk_is_distinguished_from_other_errors(self) -> None:
        assert "The disk of /data/x is read-only" in str(translate_error(OSError(errno.EROFS, "read-only", "/data/x")))
        told = str(translate_error(OSError(errno.EIO, "Input/output error")))
        assert told.startswith("the object store is unavailable (Input/output error)")

    def test_a_failing_disk_raises_only_our_errors(self, files: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        data = settled(files, b"x")
        incoming_file, other = files.create(), files.create()
        fail = refusing(errno.EIO)
        attempts: list[tuple[str, Callable[[], object]]] = [
            ("write", lambda: incoming_file.write(b"x")),
            ("fsync", incoming_file.settle),
            ("fsync", lambda: files.settle([other])),
            ("open", files.create),
            ("link", lambda: files.link(data, 1)),
            ("statvfs", lambda: files.require_space(1)),
            ("copy_file_range", lambda: files.join([(data, 1)])),
        ]
        for function, attempt in attempts:
            with monkeypatch.context() as patch:
                # No disk fails on demand, so the failure is simulated.
                patch.setattr(os, function, fail)
                with pytest.raises(Unavailable, match="Input/output error"):
                    attempt()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", fail)
            with pytest.raises(Unavailable, match="Input/output error"):
                files.remove([data])
        with monkeypatch.context() as patch:
            patch.setattr(io, "FileIO", fail)
            with pytest.raises(Unavailable, match="Input/output error"):
                files.open(data)

    def test_a_missing_file_is_reported_as_lost(self, files: DataFiles) -> None:
        attempts: list[Callable[[], object]] = [
            lambda: files.open("0123ab"),
            lambda: files.link("0123ab", 1),
            lambda: files.join([("0123ab", 1)]),
            lambda: body_of(files, "0123ab"),
        ]
        for attempt in attempts:
            with pytest.raises(DataFileMissing, match=r"data/ab/0123ab is missing.*trainyard restore"):
                attempt()
        assert files.size("0123ab") is None
        assert files.incoming_files() == []


class TestPlaces:
    def test_the_folder_of_a_file_is_the_end_of_its_name(self, files: DataFiles, root: Path) -> None:
        data = settled(files, b"bytes")
        path = root / "data" / data[-2:] / data
        assert path.read_bytes() == b"bytes"
        assert path == data_path(root, data) == files.path(data) == Path(files.place(data))
        assert files.folder == str(root / "data")
        assert files.size(data) == 5
        assert list(files) == [data]

    def test_every_folder_is_there_from_the_beginning_and_after_one_was_lost(self, root: Path) -> None:
        for _ in range(2):
            DataFiles(root).close()
            assert sorted(folder.name for folder in (root / "data").iterdir()) == [f"{n:02x}" for n in range(256)]
            (root / "data" / "00").rmdir()
            (root / "data" / "ff").rmdir()

    def test_only_the_owner_can_read_incoming_files_and_locks(self, files: DataFiles, root: Path) -> None:
        incoming_file = files.create()
        assert mode_of(root / "incoming" / incoming_file.data) == 0o600
        with hold_files(root):
            assert mode_of(root / "hold.lock") == 0o600
        incoming_file.settle()
        assert mode_of(files.path(incoming_file.data)) == 0o644
        incoming_file.discard()

    def test_names_begin_with_the_time_and_are_never_used_twice(self, files: DataFiles) -> None:
        names = [settled(files, b"") for _ in range(300)]
        assert [name[:16] for name in names] == sorted(name[:16] for name in names)
        assert len({name[16:] for name in names}) == len(names)
        assert {len(name) for name in names} == {24}
        assert list(files) == sorted(names, key=lambda name: (name[-2:], name))

    def test_a_file_is_begun_in_the_folder_of_another(self, files: DataFiles) -> None:
        first = files.create()
        others = [files.create(beside=first) for _ in range(20)]
        assert {other.data[-2:] for other in others} == {first.data[-2:]}
        assert len({each.data for each in (first, *others)}) == 21
        for each in (first, *others):
            each.discard()
        assert len({settled(files, b"")[-2:] for _ in range(40)}) > 10

    def test_a_name_that_is_taken_is_never_written_over(
        self, files: DataFiles, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("trainyard.objects.datafiles._new_id", lambda: "0123ab")
        (root / "incoming" / "0123ab").write_bytes(b"another's")
        with pytest.raises(Unavailable, match="exists"):
            files.create()
        assert (root / "incoming" / "0123ab").read_bytes() == b"another's"


class TestArrivals:
    def test_a_file_is_on_its_way_until_it_is_released(self, files: DataFiles, root: Path) -> None:
        incoming_file = files.create()
        incoming_file.write(b"bytes")
        assert (list(files), files.incoming_files(), files.is_incoming(incoming_file.data)) == (
            [],
            [incoming_file.data],
            True,
        )
        incoming_file.settle()
        assert (list(files), files.incoming_files()) == ([incoming_file.data], [incoming_file.data])
        incoming_file.release()
        assert (list(files), files.incoming_files(), files.is_incoming(incoming_file.data)) == (
            [incoming_file.data],
            [],
            False,
        )
        incoming_file.release()

    @pytest.mark.parametrize("is_settled", [False, True])
    def test_a_discarded_file_leaves_nothing(self, files: DataFiles, is_settled: bool) -> None:
        incoming_file = files.create()
        incoming_file.write(b"bytes")
        if is_settled:
            incoming_file.settle()
        open_before = open_files()
        incoming_file.discard()
        assert (list(files), files.incoming_files()) == ([], [])
        assert open_files() == open_before - (not is_settled)
        incoming_file.discard()

    def test_a_settled_file_is_open_no_more(self, files: DataFiles) -> None:
        open_before = open_files()
        incoming_files = [files.create() for _ in range(5)]
        files.settle(incoming_files)
        settled(files, b"x")
        assert open_files() == open_before

    def test_a_discarded_file_that_cannot_be_removed_does_no_harm(
        self, files: DataFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        incoming_file = files.create()
        monkeypatch.setattr(Path, "unlink", refusing(errno.EIO))
        incoming_file.discard()
        incoming_file.release()
        files.drop_ballast()

    def test_the_bytes_written_so_far_are_read_again_from_the_start(self, files: DataFiles) -> None:
        body = bytes(range(251)) * 12_000  # a little less than 3 MiB
        incoming_file = files.create()
        incoming_file.write(body[:1000])
        incoming_file.write(body[1000:])
        for _ in range(2):
            chunks = list(incoming_file.chunks())
            assert b"".join(chunks) == body
            assert [len(chunk) for chunk in chunks] == [MIB, MIB, len(body) - 2 * MIB]
        incoming_file.discard()

    def test_a_short_write_of_the_kernel_continues_to_the_end(
        self, files: DataFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = os.write
        incoming_file = files.create()
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:7]))
        incoming_file.write(bytes(range(100)))
        assert b"".join(incoming_file.chunks()) == bytes(range(100))
        incoming_file.discard()

    def test_a_file_is_read_in_pieces_from_anywhere(self, files: DataFiles) -> None:
        body = bytes(range(251)) * 10_000
        data = settled(files, body)
        assert [len(chunk) for chunk in files.chunks(data)] == [MIB, MIB, len(body) - 2 * MIB]
        assert body_of(files, data) == body
        assert b"".join(files.chunks(data, offset=100)) == body[100:]
        assert b"".join(files.chunks(data, offset=100, size=MIB + 5)) == body[100 : 100 + MIB + 5]
        assert b"".join(files.chunks(data, offset=100, size=0)) == b""
        assert b"".join(files.chunks(data, offset=len(body) - 3, size=100)) == body[-3:]


class TestJoining:
    BODIES = (b"a" * (2 * MIB + 1), b"", b"b" * 10)

    @pytest.fixture(params=["in the kernel", "through this process", "partly in the kernel"])
    def copying(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        if request.param == "in the kernel":
            return
        copy, left = os.copy_file_range, [2 if "partly" in request.param else 0]

        # No file system here refuses to copy, so the refusal is simulated.
        def refuse(source: int, target: int, size: int) -> int:
            if not left[0]:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            left[0] -= 1
            return copy(source, target, min(size, 1000))

        monkeypatch.setattr(os, "copy_file_range", refuse)

    @pytest.mark.usefixtures("copying")
    def test_files_are_joined_one_after_another(self, files: DataFiles) -> None:
        pieces = [(settled(files, body), len(body)) for body in self.BODIES]
        incoming_file = files.join(pieces)
        assert b"".join(incoming_file.chunks()) == b"".join(self.BODIES)
        incoming_file.discard()
        incoming_file = files.join([(pieces[0][0], 5), (pieces[2][0], 3)])
        assert b"".join(incoming_file.chunks()) == b"aaaaabbb"
        incoming_file.discard()

    @pytest.mark.usefixtures("copying")
    def test_a_piece_that_is_too_short_is_never_joined(self, files: DataFiles) -> None:
        short = settled(files, b"x" * 10)
        with pytest.raises(Corrupt, match=r"is 90 bytes too short; run `trainyard doctor`"):
            files.join([(short, 100)])
        assert files.incoming_files() == []
        assert list(files) == [short]

    @pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM])
    def test_a_kernel_that_cannot_copy_is_done_without(
        self, files: DataFiles, number: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = settled(files, b"bytes")
        monkeypatch.setattr(os, "copy_file_range", refusing(number))
        incoming_file = files.join([(data, 5)])
        assert b"".join(incoming_file.chunks()) == b"bytes"
        incoming_file.discard()

    def test_a_join_that_fails_leaves_no_file(self, files: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        data = settled(files, b"bytes")
        monkeypatch.setattr(os, "copy_file_range", refusing(errno.EIO))
        with pytest.raises(Unavailable):
            files.join([(data, 5)])
        assert files.incoming_files() == []

    def test_only_a_file_with_too_many_names_is_copied(self, files: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        data = settled(files, b"bytes")
        link = files.link(data, 5)
        assert link.data != data
        link.settle()
        assert files.path(link.data).samefile(files.path(data))
        link.discard()
        # Creating 65,000 links takes minutes, so the refusal of one more is simulated.
        monkeypatch.setattr(os, "link", refusing(errno.EMLINK))
        copied = files.link(data, 5)
        assert b"".join(copied.chunks()) == b"bytes"
        copied.discard()
        monkeypatch.setattr(os, "link", refusing(errno.EPERM))
        with pytest.raises(Unavailable):
            files.link(data, 5)


class TestRoom:
    def test_creating_writing_and_joining_files_keep_the_reserve_free(self, root: Path, tmp_path: Path) -> None:
        with closing(DataFiles(root)) as files:
            data = settled(files, b"x" * 10)
            wanted = files.reserve.free_bytes // 2
        with closing(DataFiles(root, reserve_bytes=wanted)) as files:
            assert files.reserve.bytes == wanted
            files.require_space(0)
            with pytest.raises(Unavailable, match="kept for the yard's own records"):
                files.join([(data, wanted), (data, wanted)])
            assert files.incoming_files() == []
        with closing(DataFiles(root, reserve_bytes=1 << 62)) as files:
            incoming_file = IncomingFile(files, "0123ab", os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))
            attempts: list[Callable[[], object]] = [
                files.create,
                lambda: incoming_file.write(b"x"),
                lambda: files.join([]),
                lambda: files.require_space(0),
            ]
            for attempt in attempts:
                with pytest.raises(Unavailable, match="kept for the yard's own records"):
                    attempt()
            assert files.incoming_files() == []
            incoming_file.discard()

    def test_space_is_set_aside_and_given_up(self, files: DataFiles, root: Path) -> None:
        ballast = root / "ballast"
        for _ in range(2):
            files.load_ballast()
            assert (ballast.stat().st_size, ballast.stat().st_blocks * 512) == (8 * MIB, 8 * MIB)
        files.drop_ballast()
        assert not ballast.exists()
        files.drop_ballast()

    def test_a_disk_without_so_much_space_has_none_set_aside(
        self, files: DataFiles, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "ballast").write_bytes(b"x" * 100)
        monkeypatch.setattr(os, "posix_fallocate", refusing(errno.ENOSPC))
        files.load_ballast()
        assert (root / "ballast").stat().st_size == 0
        (root / "ballast").unlink()
        (root / "ballast").mkdir()
        files.load_ballast()
        files.drop_ballast()


class TestLocks:
    def test_removed_files_are_counted_and_none_is_removed_while_a_backup_holds_them(
        self, files: DataFiles, root: Path
    ) -> None:
        datas = [settled(files, b"x") for _ in range(3)]
        with hold_files(root):
            with pytest.raises(Unavailable, match="A backup holds the files"):
                files.remove(datas)
            assert len(list(files)) == 3
        assert files.remove([datas[0], "0123ab", datas[1]]) == 2
        assert list(files) == [datas[2]]
        assert files.remove([datas[0]]) == 0

    def test_removals_can_run_concurrently(self, files: DataFiles, root: Path) -> None:
        data = settled(files, b"x")
        with (root / "hold.lock").open("ab") as other:
            fcntl.flock(other, fcntl.LOCK_SH)
            assert files.remove([data]) == 1

    def test_a_hold_ends_with_its_block(self, root: Path) -> None:
        DataFiles(root).close()
        open_before = open_files()
        for _ in range(2):
            with pytest.raises(RuntimeError), hold_files(root):
                raise RuntimeError
        assert open_files() == open_before

    def test_only_the_first_to_open_is_alone_until_it_shares(self, files: DataFiles, root: Path) -> None:
        assert files.is_exclusive
        with closing(DataFiles(root)) as second:
            assert not second.is_exclusive
        files.share()
        with closing(DataFiles(root)) as third:
            assert not third.is_exclusive
            third.share()
            files.close()
        with closing(DataFiles(root)) as fourth:
            assert fourth.is_exclusive
