import os

from trainyard.instance.sandbox import status


def test_a_report_is_one_line_that_a_pipe_takes_whole() -> None:
    reader, writer = os.pipe()
    status.report(writer, status.NOTE, "two\nlines and \N{SNOWMAN}" + "x" * 10_000)
    os.close(writer)
    line = os.read(reader, 65536)
    os.close(reader)
    assert line.startswith(b"note two lines and ")
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert len(line) <= 4096


def test_a_launcher_that_is_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    status.report(writer, status.RUNNING)
    os.close(writer)


def test_an_error_names_what_was_tried() -> None:
    assert status.describe_error(OSError(2, "No such file or directory", "/x")) == "/x: No such file or directory"
