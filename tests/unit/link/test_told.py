"""Lines that tell an agent something."""

import pytest

from trainyard.link.told import Told, ToldKind, decode, encode


def test_what_is_told_is_what_is_heard() -> None:
    told = Told(ToldKind.RULE, {"rule": "nan", "finding": {"step": 3, "tensor": "loss"}})
    line = encode(told)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == told


@pytest.mark.parametrize(
    "line",
    [b"", b"null", b"7", b"[]", b"{}", b'{"kind": "note"}', b'{"kind": "x", "payload": {}}', b"\xff", b"[" * 9999],
)
def test_a_line_that_is_none_of_ours_tells_nothing(line: bytes) -> None:
    assert decode(line) is None
