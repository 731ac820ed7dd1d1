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
from trainyard.objects.datafiles import Arrival, DataFileMissing, DataFiles, data_path, explain, hold

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def files(root: Path) -> Iterator[DataFiles]:
    with closing(DataFiles(root)) as opened:
        yield opened


def settled(files: DataFiles, body: bytes) -> str:
    arrival = files.begin()
    arrival.write(body)
    arrival.settle()
    arrival.release()
    return arrival.data


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
        told = str(explain(OSError(number, "full", "/data/x")))
        assert told == "There is no space left for /data/x. Free some (`trainyard gc` may help), then try again."

    def test_a_read_only_disk_is_told_from_other_faults(self) -> None:
        assert "The disk of /data/x is read-only" in str(explain(OSError(errno.EROFS, "read-only", "/data/x")))
        told = str(explain(OSError(errno.EIO, "Input/output error")))
        assert told.startswith("the object store cannot be used now (Input/output error)")

    def test_nothing_but_our_errors_comes_from_a_disk_that_fails(
        self, files: DataFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = settled(files, b"x")
        arrival, other = files.begin(), files.begin()
        fail = refusing(errno.EIO)
        attempts: list[tuple[str, Callable[[], object]]] = [
            ("write", lambda: arrival.write(b"x")),
            ("fsync", arrival.settle),
            ("fsync", lambda: files.settle([other])),
            ("open", files.begin),
            ("link", lambda: files.link(data, 1)),
            ("statvfs", lambda: files.require_room(1)),
            ("copy_file_range", lambda: files.join([(data, 1)])),
        ]
        for function, attempt in attempts:
            with monkeypatch.context() as patch:
                # No disk of this machine fails when it is told to, so that is played.
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

    def test_a_file_that_is_not_there_is_told_as_lost(self, files: DataFiles) -> None:
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
        assert files.arrivals() == []


class TestPlaces:
    def test_a_file_lies_in_a_folder_named_for_the_end_of_its_name(self, files: DataFiles, root: Path) -> None:
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

    def test_what_is_on_its_way_and_the_locks_are_for_the_owner_alone(self, files: DataFiles, root: Path) -> None:
        arrival = files.begin()
        assert mode_of(root / "incoming" / arrival.data) == 0o600
        with hold(root):
            assert mode_of(root / "hold.lock") == 0o600
        arrival.settle()
        assert mode_of(files.path(arrival.data)) == 0o644
        arrival.discard()

    def test_names_begin_with_the_time_and_are_never_used_twice(self, files: DataFiles) -> None:
        names = [settled(files, b"") for _ in range(300)]
        assert [name[:16] for name in names] == sorted(name[:16] for name in names)
        assert len({name[16:] for name in names}) == len(names)
        assert {len(name) for name in names} == {24}
        assert list(files) == sorted(names, key=lambda name: (name[-2:], name))

    def test_a_file_is_begun_in_the_folder_of_another(self, files: DataFiles) -> None:
        first = files.begin()
        others = [files.begin(beside=first) for _ in range(20)]
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
            files.begin()
        assert (root / "incoming" / "0123ab").read_bytes() == b"another's"


class TestArrivals:
    def test_a_file_is_on_its_way_until_it_is_released(self, files: DataFiles, root: Path) -> None:
        arrival = files.begin()
        arrival.write(b"bytes")
        assert (list(files), files.arrivals(), files.is_arriving(arrival.data)) == ([], [arrival.data], True)
        arrival.settle()
        assert (list(files), files.arrivals()) == ([arrival.data], [arrival.data])
        arrival.release()
        assert (list(files), files.arrivals(), files.is_arriving(arrival.data)) == ([arrival.data], [], False)
        arrival.release()

    @pytest.mark.parametrize("is_settled", [False, True])
    def test_what_is_discarded_leaves_nothing(self, files: DataFiles, is_settled: bool) -> None:
        arrival = files.begin()
        arrival.write(b"bytes")
        if is_settled:
            arrival.settle()
        open_before = open_files()
        arrival.discard()
        assert (list(files), files.arrivals()) == ([], [])
        assert open_files() == open_before - (not is_settled)
        arrival.discard()

    def test_a_settled_file_is_open_no_more(self, files: DataFiles) -> None:
        open_before = open_files()
        arrivals = [files.begin() for _ in range(5)]
        files.settle(arrivals)
        settled(files, b"x")
        assert open_files() == open_before

    def test_what_the_disk_keeps_of_a_discarded_file_disturbs_nobody(
        self, files: DataFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        arrival = files.begin()
        monkeypatch.setattr(Path, "unlink", refusing(errno.EIO))
        arrival.discard()
        arrival.release()
        files.drop_ballast()

    def test_the_bytes_written_so_far_are_read_again_from_the_start(self, files: DataFiles) -> None:
        body = bytes(range(251)) * 12_000  # a little less than 3 MiB
        arrival = files.begin()
        arrival.write(body[:1000])
        arrival.write(body[1000:])
        for _ in range(2):
            chunks = list(arrival.chunks())
            assert b"".join(chunks) == body
            assert [len(chunk) for chunk in chunks] == [MIB, MIB, len(body) - 2 * MIB]
        arrival.discard()

    def test_a_write_that_the_kernel_cuts_short_goes_on_to_its_end(
        self, files: DataFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = os.write
        arrival = files.begin()
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:7]))
        arrival.write(bytes(range(100)))
        assert b"".join(arrival.chunks()) == bytes(range(100))
        arrival.discard()

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

        # No file system of this machine refuses to copy, so the refusal is played.
        def refuse(source: int, target: int, size: int) -> int:
            if not left[0]:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            left[0] -= 1
            return copy(source, target, min(size, 1000))

        monkeypatch.setattr(os, "copy_file_range", refuse)

    @pytest.mark.usefixtures("copying")
    def test_files_are_joined_one_after_another(self, files: DataFiles) -> None:
        pieces = [(settled(files, body), len(body)) for body in self.BODIES]
        arrival = files.join(pieces)
        assert b"".join(arrival.chunks()) == b"".join(self.BODIES)
        arrival.discard()
        arrival = files.join([(pieces[0][0], 5), (pieces[2][0], 3)])
        assert b"".join(arrival.chunks()) == b"aaaaabbb"
        arrival.discard()

    @pytest.mark.usefixtures("copying")
    def test_a_piece_that_is_too_short_is_never_joined(self, files: DataFiles) -> None:
        short = settled(files, b"x" * 10)
        with pytest.raises(Corrupt, match=r"has 90 bytes fewer than it should; run `trainyard doctor`"):
            files.join([(short, 100)])
        assert files.arrivals() == []
        assert list(files) == [short]

    @pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM])
    def test_a_kernel_that_cannot_copy_is_done_without(
        self, files: DataFiles, number: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = settled(files, b"bytes")
        monkeypatch.setattr(os, "copy_file_range", refusing(number))
        arrival = files.join([(data, 5)])
        assert b"".join(arrival.chunks()) == b"bytes"
        arrival.discard()

    def test_a_join_that_fails_leaves_no_file(self, files: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        data = settled(files, b"bytes")
        monkeypatch.setattr(os, "copy_file_range", refusing(errno.EIO))
        with pytest.raises(Unavailable):
            files.join([(data, 5)])
        assert files.arrivals() == []

    def test_only_a_file_with_too_many_names_is_copied(self, files: DataFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        data = settled(files, b"bytes")
        link = files.link(data, 5)
        assert link.data != data
        link.settle()
        assert files.path(link.data).samefile(files.path(data))
        link.discard()
        # 65,000 links would take minutes to make, so the refusal of one more is played.
        monkeypatch.setattr(os, "link", refusing(errno.EMLINK))
        copied = files.link(data, 5)
        assert b"".join(copied.chunks()) == b"bytes"
        copied.discard()
        monkeypatch.setattr(os, "link", refusing(errno.EPERM))
        with pytest.raises(Unavailable):
            files.link(data, 5)


class TestRoom:
    def test_what_is_begun_written_and_joined_leaves_the_reserve_free(self, root: Path, tmp_path: Path) -> None:
        with closing(DataFiles(root)) as files:
            data = settled(files, b"x" * 10)
            wanted = files.reserve.free_bytes // 2
        with closing(DataFiles(root, reserve_bytes=wanted)) as files:
            assert files.reserve.bytes == wanted
            files.require_room(0)
            with pytest.raises(Unavailable, match="kept for the yard's own records"):
                files.join([(data, wanted), (data, wanted)])
            assert files.arrivals() == []
        with closing(DataFiles(root, reserve_bytes=1 << 62)) as files:
            arrival = Arrival(files, "0123ab", os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))
            attempts: list[Callable[[], object]] = [
                files.begin,
                lambda: arrival.write(b"x"),
                lambda: files.join([]),
                lambda: files.require_room(0),
            ]
            for attempt in attempts:
                with pytest.raises(Unavailable, match="kept for the yard's own records"):
                    attempt()
            assert files.arrivals() == []
            arrival.discard()

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
    def test_removed_files_are_counted_and_nothing_goes_while_a_backup_holds_them(
        self, files: DataFiles, root: Path
    ) -> None:
        datas = [settled(files, b"x") for _ in range(3)]
        with hold(root):
            with pytest.raises(Unavailable, match="A backup holds the files"):
                files.remove(datas)
            assert len(list(files)) == 3
        assert files.remove([datas[0], "0123ab", datas[1]]) == 2
        assert list(files) == [datas[2]]
        assert files.remove([datas[0]]) == 0

    def test_removals_go_on_side_by_side(self, files: DataFiles, root: Path) -> None:
        data = settled(files, b"x")
        with (root / "hold.lock").open("ab") as other:
            fcntl.flock(other, fcntl.LOCK_SH)
            assert files.remove([data]) == 1

    def test_a_hold_ends_with_its_block(self, root: Path) -> None:
        DataFiles(root).close()
        open_before = open_files()
        for _ in range(2):
            with pytest.raises(RuntimeError), hold(root):
                raise RuntimeError
        assert open_files() == open_before

    def test_only_the_first_to_open_is_alone_until_it_shares(self, files: DataFiles, root: Path) -> None:
        assert files.is_alone
        with closing(DataFiles(root)) as second:
            assert not second.is_alone
        files.share()
        with closing(DataFiles(root)) as third:
            assert not third.is_alone
            third.share()
            files.close()
        with closing(DataFiles(root)) as fourth:
            assert fourth.is_alone
