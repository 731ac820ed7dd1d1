import pytest

from trainyard.formats.profiles.step_times import EVAL, HEADER, TRAIN, StepRow, decode_rows, encode_row

ROWS = [
    StepRow(0, 1, TRAIN, 1_000_000, 1_250_000, [1, 2, 3, 4, 5, 6, 7, 8]),
    StepRow(1, 40, EVAL, 1_250_000, 2_000_000, [0] * 7 + [750_000_000]),
]


def test_rows_are_read_as_they_were_written() -> None:
    assert list(decode_rows(HEADER + b"".join(map(encode_row, ROWS)))) == ROWS


def test_a_torn_row_hides_only_itself() -> None:
    assert list(decode_rows(HEADER + b"".join(map(encode_row, ROWS))[:-5])) == ROWS[:1]


@pytest.mark.parametrize("data", [b"", b"TYSTEPS", b"<html>" * 50, HEADER, HEADER[:-1] + b"\xff" + bytes(96)])
def test_other_files_have_no_rows(data: bytes) -> None:
    assert list(decode_rows(data)) == []


def test_rows_that_no_hook_writes_are_left_out() -> None:
    no_steps = encode_row(ROWS[0]._replace(steps=0))
    backwards = encode_row(ROWS[0]._replace(ended_us=5))
    unknown_mode = bytearray(encode_row(ROWS[0]))
    unknown_mode[12] = 9
    assert list(decode_rows(HEADER + no_steps + backwards + bytes(unknown_mode) + encode_row(ROWS[1]))) == ROWS[1:]
