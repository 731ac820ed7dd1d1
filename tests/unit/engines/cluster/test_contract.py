"""Runners of the release before keep running after an upgrade, and the new proxy has to understand their answers."""

import pickle

from trainyard.engines.cluster.contract import FileChunk, PreparedInstance, PullResult
from trainyard.link import contract as link

MODULE = b'\x8c"trainyard.engines.cluster.contract\x94'

# As the release before these classes were renamed pickled them.
PULLED = (
    b"\x80\x04\x95h\x00\x00\x00\x00\x00\x00\x00"
    + MODULE
    + b"\x8c\x06Pulled\x94\x93\x94)\x81\x94]\x94(h\x00\x8c\x05Piece"
    b"\x94\x93\x94)\x81\x94]\x94(\x8c\x05spool\x94K\x03C\x01x\x94\x89eb\x85\x94\x88\x89\x88\x88\x8c\x03now\x94eb."
)
PREPARED = (
    b"\x80\x04\x95D\x00\x00\x00\x00\x00\x00\x00"
    + MODULE
    + b"\x8c\x08Prepared\x94\x93\x94)\x81\x94]\x94(M\xa0\x0f\x8c\x03"
    b"now\x94eb."
)


def test_answers_of_the_release_before_are_understood() -> None:
    chunk = FileChunk("spool", 3, b"x")
    assert pickle.loads(PULLED) == PullResult((chunk,), is_alive=True, is_all=False, has_lost_node=True, stamp="now")
    assert pickle.loads(PREPARED) == PreparedInstance(4000, "now")


def test_what_is_sent_to_runners_keeps_its_names() -> None:
    for name in ("Command", "CommandKind", "InstanceSpec", "LimitSpec"):
        assert getattr(link, name).__qualname__ == name
