"""Events are written with the change that they report, and a reader with a cursor misses none."""

import threading
from itertools import pairwise

from trainyard.foundation.errors import NotFound
from trainyard.server.records.contract import Change, Event, NewEvent, Records, Resource, ResourceId
from trainyard.testing.records.samples import ALICE, BOB, KIND, LEASE, NOON, draft, in_threads, minutes

WRITERS = 8
EVENTS_EACH = 40


class EventContract:
    def test_the_newest_event_is_known_without_reading_the_others(self, records: Records) -> None:
        assert records.last_event() == 0
        for name in ("a", "b"):
            records.create(draft(name), now=NOON, event=NewEvent("created"))
        assert records.last_event() == records.events()[-1].sequence

    def test_an_event_has_its_time_kind_and_subject(self, records: Records) -> None:
        made = records.create(draft("a"), now=NOON, event=NewEvent("created", {"x": [1]}))
        [event] = records.events()
        assert event == Event(event.sequence, NOON, ALICE, "created", made.id, {"x": [1]})

    def test_a_write_without_an_event_appends_none(self, records: Records) -> None:
        made = records.create(draft("a"), now=NOON)
        records.apply(made, Change(status="x"), now=NOON)
        assert records.events() == []

    def test_events_come_in_the_order_of_the_writes(self, records: Records) -> None:
        made = records.create(draft("a", due_at=NOON), now=NOON, event=NewEvent("created"))
        changed = records.apply(made, Change(status="x"), now=NOON, events=[NewEvent("one"), NewEvent("two")])
        claim = records.claim_next(KIND, worker="w", lease=LEASE, now=NOON)
        assert changed is not None
        assert claim is not None
        worked = records.apply_claimed(claim, Change(), now=NOON, events=[NewEvent("three")])
        assert worked is not None
        records.delete(worked.resource, now=NOON, event=NewEvent("deleted"))
        events = records.events()
        assert [event.kind for event in events] == ["created", "one", "two", "three", "deleted"]
        assert {event.subject for event in events} == {made.id}
        assert all(earlier.sequence < later.sequence for earlier, later in pairwise(events))

    def test_a_listener_is_called_for_every_change_once_it_is_durable(self, records: Records) -> None:
        heard: list[tuple[str, str]] = []

        def listen(changed: ResourceId) -> None:
            try:
                heard.append((changed, records.load_by_id(changed).status))
            except NotFound:
                heard.append((changed, "gone"))

        made = records.create(draft("a", due_at=NOON), now=NOON)
        records.listen(listen)
        changed = records.apply(made, Change(status="one"), now=NOON)
        assert records.apply(made, Change(status="late"), now=NOON) is None
        claim = records.claim_next(KIND, worker="w", lease=LEASE, now=NOON)
        assert changed is not None
        assert claim is not None
        worked = records.apply_claimed(claim, Change(status="two"), now=NOON)
        assert worked is not None
        assert not records.delete(made, now=NOON)
        assert records.delete(worked.resource, now=NOON)
        assert heard == [(made.id, "one"), (made.id, "two"), (made.id, "gone")]

    def test_events_outlive_their_subject(self, records: Records) -> None:
        made = records.create(draft("a"), now=NOON, event=NewEvent("created"))
        records.delete(made, now=NOON)
        assert [event.subject for event in records.events()] == [made.id]

    def test_a_reader_continues_from_its_cursor(self, records: Records) -> None:
        for number in range(7):
            records.create(draft(str(number)), now=minutes(number), event=NewEvent(str(number)))
        read: list[str] = []
        cursor = 0
        while page := records.events(after=cursor, limit=3):
            assert len(page) <= 3
            read += [event.kind for event in page]
            cursor = page[-1].sequence
        assert read == list("0123456")

    def test_a_reader_can_ask_for_one_account(self, records: Records) -> None:
        for number, account in enumerate([ALICE, BOB, ALICE]):
            records.create(draft(str(number), account=account), now=NOON, event=NewEvent(str(number)))
        mine = records.events(account=ALICE)
        assert [event.kind for event in mine] == ["0", "2"]
        assert [event.kind for event in records.events(account=ALICE, after=mine[0].sequence)] == ["2"]

    def test_a_reader_beside_many_writers_misses_nothing(self, records: Records) -> None:
        """A cursor only moves forward, so a number that appeared behind it later would be lost."""
        seen: list[int] = []
        is_over = threading.Event()

        def follow() -> None:
            while True:
                last_look = is_over.is_set()
                page = records.events(after=seen[-1] if seen else 0, limit=1000)
                seen.extend(event.sequence for event in page)
                if last_look and not page:
                    return

        reader = threading.Thread(target=follow)
        reader.start()
        try:
            in_threads(WRITERS, lambda number: write_events(records, number))
        finally:
            is_over.set()
            reader.join()
        assert seen == [event.sequence for event in records.events(limit=10_000)]
        assert len(seen) == WRITERS * EVENTS_EACH


def write_events(records: Records, number: int) -> None:
    """Write several events at once, so that a transaction holds its numbers for a while."""
    resource: Resource | None = records.create(draft(f"job-{number}"), now=NOON)
    for _ in range(EVENTS_EACH // 4):
        assert resource is not None
        resource = records.apply(resource, Change(status="x"), now=NOON, events=[NewEvent("step")] * 4)
