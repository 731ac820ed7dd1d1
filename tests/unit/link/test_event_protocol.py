"""Lines that tell an agent something."""

import pytest

from trainyard.link.event_protocol import AgentEvent, AgentEventKind, decode_event, encode_event


def test_an_event_survives_encoding_and_decoding() -> None:
    told = AgentEvent(AgentEventKind.RULE, {"rule": "nan", "finding": {"step": 3, "tensor": "loss"}})
    line = encode_event(told)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_event(line) == told


@pytest.mark.parametrize(
    "line",
    [b"", b"null", b"7", b"[]", b"{}", b'{"kind": "note"}', b'{"kind": "x", "payload": {}}', b"\xff", b"[" * 9999],
)
def test_a_foreign_line_says_nothing(line: bytes) -> None:
    assert decode_event(line) is None
