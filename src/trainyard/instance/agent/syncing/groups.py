"""Many files at once: small ones in one write where the store has that, side by side where it is far away.

Files are stored in the order in which they were written last, since a program writes what points to others after them.
Those of one group have no order among themselves: in one write they appear at one moment; side by side go only files
that hardly point to others, which the last one of a folder and one that replaces an object may do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.foundation.errors import TrainyardError
from trainyard.instance.agent.syncing.changes import Candidate
from trainyard.instance.agent.syncing.looks import Look
from trainyard.instance.agent.syncing.sending import Sender, Small
from trainyard.objects.contract import ObjectAccess, PreconditionFailed, WritesTogether

SMALL_BYTES = 256 * 1024  # of one file that is written with others
GROUP_BYTES = 16 * 1024 * 1024  # which lie in memory
GROUP_FILES = 128  # which the store has open
SIDE_BY_SIDE = 16


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of a file: the look that is stored, nothing when it is for later, or an error."""

    path: str
    outcome: Look | TrainyardError | OSError | None


def send_all(sender: Sender, store: ObjectAccess, candidates: Sequence[Candidate]) -> Iterator[Sequence[Sent]]:
    """Store files group by group, each durable when it is given; who has enough takes no more."""
    if isinstance(store, WritesTogether):
        return _together(sender, store, candidates)
    return _side_by_side(sender, store, candidates)


def _together(sender: Sender, store: ObjectAccess, candidates: Sequence[Candidate]) -> Iterator[Sequence[Sent]]:
    group: list[Small] = []
    size = 0
    for candidate in candidates:
        small = _read(sender, candidate)
        if small is not None:
            group.append(small)
            size += small.look.size
        if group and (small is None or size >= GROUP_BYTES or len(group) >= GROUP_FILES):
            yield _write(sender, store, group)
            group, size = [], 0
        if small is None:
            yield [_send(sender, store, candidate)]
    if group:
        yield _write(sender, store, group)


def _read(sender: Sender, candidate: Candidate) -> Small | None:
    try:
        return sender.read_small(candidate, SMALL_BYTES)
    except OSError:  # which sending it by itself tells
        return None


def _write(sender: Sender, store: ObjectAccess, group: Sequence[Small]) -> list[Sent]:
    assert isinstance(store, WritesTogether), "the caller has looked"
    try:
        outcomes = sender.send_together(store, group)
    except (TrainyardError, OSError) as error:
        return [Sent(each.candidate.path, error) for each in group]
    return [
        # By itself it is found out who has put another object there, and that one is replaced.
        _send(sender, store, each.candidate)
        if isinstance(outcome, PreconditionFailed)
        else Sent(each.candidate.path, outcome)
        for each, outcome in zip(group, outcomes, strict=True)
    ]


def _side_by_side(sender: Sender, store: ObjectAccess, candidates: Sequence[Candidate]) -> Iterator[Sequence[Sent]]:
    from concurrent.futures import ThreadPoolExecutor  # here, for an agent with a local store needs none

    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        for group in _groups(sender, candidates):
            yield list(threads.map(lambda candidate: _send(sender, store, candidate), group))


def _groups(sender: Sender, candidates: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    last_of_folders = {candidate.path.rpartition("/")[0]: candidate for candidate in candidates}.values()
    alone = {candidate.path for candidate in last_of_folders}
    group: list[Candidate] = []
    for candidate in candidates:
        is_alone = candidate.path in alone or sender.has_stored(candidate.path)
        if group and (is_alone or len(group) == SIDE_BY_SIDE):
            yield group
            group = []
        if is_alone:
            yield [candidate]
        else:
            group.append(candidate)
    if group:
        yield group


def _send(sender: Sender, store: ObjectAccess, candidate: Candidate) -> Sent:
    try:
        return Sent(candidate.path, sender.send(store, candidate))
    except (TrainyardError, OSError) as error:
        return Sent(candidate.path, error)
