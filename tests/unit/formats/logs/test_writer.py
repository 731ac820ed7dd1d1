"""What a writer leaves behind: after a crash, beside others, on a disk that fails."""

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.formats.logs import MAX_EVENT_BYTES, LogEvent, LogReader, LogWriter
from trainyard.foundation.errors import InvalidRequest, Unavailable


@settings(max_examples=60, deadline=None)
@given(lost_from_index=st.integers(0, 230), lost_from_log=st.integers(0, 20))
def test_after_a_crash_complete_appends_remain_and_writing_continues(
    tmp_path_factory: pytest.TempPathFactory, lost_from_index: int, lost_from_log: int
) -> None:
    folder = tmp_path_factory.mktemp("stream")
    lines = [b"alpha\n", b"beta\n", b"gam", b"ma\n"]
    with LogWriter(folder) as writer:
        for ms, line in enumerate(lines):
            writer.append(line, ms)
    cut(folder, "index", lost_from_index)
    cut(folder, "log", lost_from_log)

    survivors = messages(folder)
    assert survivors == [b"alpha", b"beta", b"gamma"][: len(survivors)]
    with LogWriter(folder) as writer:
        writer.end_line(50)
        writer.append(b"omega\n", 60)
    # The half line "gam" may have survived alone; then it was ended.
    assert messages(folder) in ([*survivors, b"omega"], [*survivors, b"gam", b"omega"])


def test_an_append_without_its_record_has_not_happened(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append(b"kept\n", 1)
        writer.append(b"torn\n", 2)
    cut(tmp_path, "index", 1)
    assert messages(tmp_path) == [b"kept"]
    with LogWriter(tmp_path) as writer:
        assert writer.end == 5
        writer.append(b"next\n", 3)
    assert messages(tmp_path) == [b"kept", b"next"]


def test_a_record_of_zeros_left_by_a_power_cut_is_no_entry(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append(b"kept\n", 1)
    with (tmp_path / f"{0:020d}.index").open("ab") as index:
        index.write(bytes(200))
    assert messages(tmp_path) == [b"kept"]
    with LogWriter(tmp_path) as writer:
        writer.append(b"next\n", 3)
    assert messages(tmp_path) == [b"kept", b"next"]


def test_a_segment_whose_bytes_never_reached_the_disk_is_begun_anew(tmp_path: Path) -> None:
    with LogWriter(tmp_path, segment_bytes=8) as writer:
        writer.append(b"1234567\n", 1)
        writer.append(b"2345678\n", 2)
    (tmp_path / f"{8:020d}.log").unlink()
    assert messages(tmp_path) == [b"1234567"]
    with LogWriter(tmp_path, segment_bytes=8) as writer:
        writer.append(b"again\n", 3)
    assert messages(tmp_path) == [b"1234567", b"again"]


def test_segments_are_named_by_their_first_offset_and_keep_to_their_size(tmp_path: Path) -> None:
    with LogWriter(tmp_path, segment_bytes=10) as writer:
        for _ in range(3):
            writer.append(b"12345\n", 1)
        writer.append(b"longer than a whole segment\n", 1)
    sizes = {file.name: file.stat().st_size for file in tmp_path.glob("*.log")}
    assert sizes == {f"{0:020d}.log": 6, f"{6:020d}.log": 6, f"{12:020d}.log": 6, f"{18:020d}.log": 28}


def test_the_files_are_for_their_owner_only(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "stream") as writer:
        writer.append(b"secret\n", 1)
    assert (tmp_path / "stream").stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "stream").iterdir())


def test_a_message_over_the_limit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.append(b"open line", 1)
        with pytest.raises(InvalidRequest, match="1048577 bytes"):
            writer.append_messages([(1, b"fine"), (2, b"x" * (MAX_EVENT_BYTES + 1))], ingested_ms=1)
        assert writer.end == len(b"open line")
        writer.append(b"x" * MAX_EVENT_BYTES, 2, whole=True)
    assert [len(message) for message in messages(tmp_path)] == [9, MAX_EVENT_BYTES]


def test_a_full_disk_makes_the_log_unavailable_and_keeps_its_bytes(tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
from trainyard.formats.logs import LogWriter
from trainyard.foundation.errors import Unavailable
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
with LogWriter(Path(sys.argv[1])) as writer:
    writer.append(b"fits" * 10 + b"\\n", 1)
    for ms in (2, 3):
        try:
            writer.append(b"does not fit" * 10 + b"\\n", ms)
        except Unavailable as error:
            print(error)
    print(writer.end)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.count("cannot be written: File too large") == 2
    assert done.stdout.splitlines()[-1] == "41"
    assert messages(tmp_path) == [b"fits" * 10]
    assert (tmp_path / f"{0:020d}.log").stat().st_size == 41


def test_a_folder_that_cannot_be_made_makes_the_log_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable, match="Not a directory"):
        LogWriter(tmp_path / "file" / "stream")


def test_writers_in_many_threads_take_turns_and_lose_nothing(tmp_path: Path) -> None:
    def append(name: int) -> None:
        for number in range(20):
            with LogWriter(tmp_path, segment_bytes=200) as writer:
                writer.append_messages([(number, f"{name}:{number}".encode())], ingested_ms=0)

    threads = [threading.Thread(target=append, args=[name]) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = messages(tmp_path)
    for name in range(4):
        own = [message for message in seen if message.startswith(b"%d:" % name)]
        assert own == [b"%d:%d" % (name, number) for number in range(20)]


def test_a_reader_in_another_process_sees_whole_appends_while_the_writer_is_killed(tmp_path: Path) -> None:
    program = """
import itertools, random, sys
from pathlib import Path
from trainyard.formats.logs import LogWriter
count, folder = int(sys.argv[2]), Path(sys.argv[1])
with LogWriter(folder, segment_bytes=20_000) as writer:
    writer.end_line(0)
    for number in itertools.count(count):
        if number % 3:
            writer.append_messages([(number, b"%d\\nwhole" % number)], ingested_ms=number)
        else:
            line = b"%d line\\n" % number
            cut = random.randrange(len(line))
            writer.append(line[:cut], number)
            writer.append(line[cut:], number)
"""
    reader = LogReader(tmp_path)
    offset, events = 0, list[LogEvent]()
    for _ in range(3):
        first = len(events)
        with subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(first * 10)]) as process:
            while len(events) < first + 500:
                page = reader.forward(offset, max_events=100)
                events += page.events
                offset = page.after
                assert process.poll() is None, "the writer ended by itself"
            process.kill()
        page = reader.forward(offset, max_events=100_000)
        events += page.events
        offset = page.after
    numbers = [whole_number(event) for event in events]
    steps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    assert all(step == 1 or step > 100 for step in steps)
    assert list(reader.scan())[: len(events)] == events


def whole_number(event: LogEvent) -> int:
    """The number in an event, after checking that the event is whole; a line cut short by a kill may lack its end."""
    number = event.ms
    if number % 3:
        assert event.message == b"%d\nwhole" % number
    else:
        assert (b"%d line" % number).startswith(event.message)
    return number


def cut(folder: Path, suffix: str, size: int) -> None:
    """Take bytes off the end of the stream's only file of that kind."""
    (file,) = folder.glob(f"*.{suffix}")
    os.truncate(file, max(0, file.stat().st_size - size))


def messages(folder: Path) -> list[bytes]:
    return [event.message for event in LogReader(folder).scan()]
