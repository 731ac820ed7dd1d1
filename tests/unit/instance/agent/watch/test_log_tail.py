"""The tail of an output."""

from trainyard.instance.agent.watch.log_tail import LogTail


def tail_of(*pieces: bytes, size: int = 1000) -> LogTail:
    tail = LogTail(size)
    for piece in pieces:
        tail.add(piece)
    return tail


def test_only_the_last_bytes_are_kept() -> None:
    tail = tail_of(*(f"{number:04d}\n".encode() for number in range(1000)), size=50)
    assert tail.text == "".join(f"{number:04d}\n" for number in range(990, 1000))


def test_one_piece_larger_than_the_tail_is_cut() -> None:
    assert tail_of(b"a" * 100 + b"b" * 10, size=10).text == "b" * 10


def test_lines_are_the_last_that_are_not_empty() -> None:
    assert tail_of(b"one\n\ntwo\r\n   \nthree").lines(2) == ["two", "three"]


def test_a_carriage_return_ends_a_line() -> None:
    assert tail_of(b"10%\r20%\r30%").lines() == ["10%", "20%", "30%"]


def test_colours_are_taken_out_and_binary_is_replaced() -> None:
    assert tail_of(b"\x1b[1;31merror\x1b[0m \xff\n").lines() == ["error \ufffd"]


def test_long_lines_are_cut() -> None:
    assert tail_of(b"x" * 900).lines() == ["x" * 500]
