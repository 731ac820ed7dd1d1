"""Due resources have a queue state. Those that wait stand in a queue, ordered for each account by priority and time."""

from collections.abc import Sequence

from trainyard.server.records.contract import (
    Change,
    Claim,
    Priority,
    QueuedResource,
    QueueState,
    Records,
    Resource,
    ResourceId,
)
from trainyard.testing.records.samples import ALICE, BOB, KIND, LEASE, NOON, draft, key, minutes, names

_WAITING, _PLACED, _UNQUEUED = QueueState.WAITING, QueueState.PLACED, QueueState.UNQUEUED
_ON_DEMAND, _SPOT = Priority.ON_DEMAND, Priority.SPOT


class QueueContract:
    def test_the_first_of_each_account_heads_a_queue(self, records: Records) -> None:
        jobs = (
            ("a", ALICE, "x", 3),
            ("b", ALICE, "x", 1),
            ("c", BOB, "x", 2),
            ("d", BOB, "y", 1),
            ("e", ALICE, "y", 2),
        )
        made = {
            name: enqueue(records, name, account=account, queue=queue, due=due) for name, account, queue, due in jobs
        }
        enqueue(records, "none", queue=None, due=-5)
        enqueue(records, "other", kind="model", due=-5)
        enqueue(records, "placed", state=_PLACED, due=-5)
        enqueue(records, "unqueued", state=_UNQUEUED, due=-5)

        assert heads(records, "x") == [
            QueuedResource(made["b"].id, ALICE, "x", _ON_DEMAND, minutes(1)),
            QueuedResource(made["c"].id, BOB, "x", _ON_DEMAND, minutes(2)),
        ]
        assert sorted(each.id for each in heads(records, "y", "x")) == sorted(made[name].id for name in "bcde")
        assert heads(records, "nobody's") == heads(records) == []

    def test_a_queue_is_ordered_by_priority_then_by_time(self, records: Records) -> None:
        jobs = (("a", _SPOT, -9), ("b", _ON_DEMAND, 2), ("c", _SPOT, 3), ("d", _ON_DEMAND, 1))
        made = {name: enqueue(records, name, priority=priority, due=due) for name, priority, due in jobs}
        old_spot = enqueue(records, "bobs", account=BOB, priority=_SPOT, due=-10)

        assert heads(records, "x") == [
            QueuedResource(made["d"].id, ALICE, "x", _ON_DEMAND, minutes(1)),
            QueuedResource(old_spot.id, BOB, "x", _SPOT, minutes(-10)),
        ]
        assert waiting(records, ALICE) == [
            QueuedResource(made["d"].id, ALICE, "x", _ON_DEMAND, minutes(1)),
            QueuedResource(made["b"].id, ALICE, "x", _ON_DEMAND, minutes(2)),
            QueuedResource(made["a"].id, ALICE, "x", _SPOT, minutes(-9)),
            QueuedResource(made["c"].id, ALICE, "x", _SPOT, minutes(3)),
        ]

    def test_a_held_or_settled_resource_is_in_no_queue(self, records: Records) -> None:
        first, second = enqueue(records, "a", due=1), enqueue(records, "b", due=2)
        claimed = records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(5), state=_WAITING)
        assert claimed is not None
        assert claimed.resource == first
        assert [each.id for each in heads(records, "x")] == [second.id]
        assert count(records, ["x"]) == 1
        records.apply_claimed(claimed, Change(due_at=minutes(3)), now=minutes(5), release=True)
        assert [each.id for each in heads(records, "x")] == [second.id]
        assert count(records, ["x"]) == 2
        records.apply(second, Change(is_settling=True), now=NOON)
        assert heads(records, "x") == [QueuedResource(first.id, ALICE, "x", _ON_DEMAND, minutes(3))]
        assert count(records, ["x"]) == 1

    def test_the_waiting_resources_of_some_accounts_come_in_their_order(self, records: Records) -> None:
        # The first to be due is made last and has the highest id.
        alices = {number: enqueue(records, f"job-{number}", due=number, created=-number) for number in (3, 1, 2)}
        bobs = enqueue(records, "bobs", account=BOB)
        enqueue(records, "elsewhere", queue="y")
        enqueue(records, "nowhere", queue=None)
        enqueue(records, "other", kind="model")
        enqueue(records, "placed", state=_PLACED)
        enqueue(records, "unqueued", state=_UNQUEUED)

        assert records.waiting(KIND, "x", accounts=[BOB, ALICE], limit=2) == [
            QueuedResource(bobs.id, BOB, "x", _ON_DEMAND, minutes(1)),
            QueuedResource(alices[1].id, ALICE, "x", _ON_DEMAND, minutes(1)),
            QueuedResource(alices[2].id, ALICE, "x", _ON_DEMAND, minutes(2)),
        ]
        assert [each.id for each in waiting(records, ALICE)] == [alices[number].id for number in (1, 2, 3)]
        assert records.waiting(KIND, "x", accounts=[], limit=9) == waiting(records, "333333333333") == []
        claim_only(records, alices[2].id)
        assert [each.id for each in waiting(records, ALICE)] == [alices[1].id, alices[3].id]

    def test_among_resources_due_at_once_the_lowest_id_comes_first(self, records: Records) -> None:
        ids = sorted(enqueue(records, name).id for name in "dbeac")
        assert [each.id for each in waiting(records, ALICE)] == ids
        for first in ids:
            assert [each.id for each in heads(records, "x")] == [first]
            claimed = records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(1), state=_WAITING)
            assert claimed is not None
            assert claimed.resource.id == first

    def test_waiting_resources_are_counted_by_queue_and_account(self, records: Records) -> None:
        for number, (account, queue) in enumerate(((ALICE, "x"), (ALICE, "x"), (BOB, "x"), (BOB, "y"), (ALICE, None))):
            enqueue(records, f"job-{number}", account=account, queue=queue, due=number)
        enqueue(records, "other", kind="model")
        enqueue(records, "placed", state=_PLACED)
        enqueue(records, "unqueued", state=_UNQUEUED)
        records.create(draft("never", queue="x", state=_WAITING), now=NOON)

        assert (count(records, ["x"]), count(records, ["y"]), count(records, ["x", "y"])) == (3, 1, 4)
        assert (count(records, []), count(records, ["nobody's"])) == (0, 0)
        assert (count(records, ["x"], ALICE), count(records, ["x", "y"], BOB)) == (2, 2)

    def test_waiting_resources_before_a_place_in_the_order_are_counted_unless_they_are_held(
        self, records: Records
    ) -> None:
        for name, due in {"a": -3, "b": -2, "c": -1, "d": 5}.items():
            enqueue(records, name, due=due)
        enqueue(records, "spot-1", priority=_SPOT, due=-4)
        enqueue(records, "spot-2", priority=_SPOT, due=6, account=BOB)

        def count_before(priority: Priority, due: float, account: str | None = None) -> int:
            return records.count_waiting(KIND, ["x"], before=(priority, minutes(due)), account=account)

        assert [count_before(_ON_DEMAND, due) for due in (-9, -3, -2.9, -1, 5, 9)] == [0, 0, 1, 2, 3, 4]
        assert [count_before(_SPOT, due) for due in (-9, -4, -3.9, 6, 7)] == [4, 4, 5, 5, 6]
        assert (count_before(_SPOT, 7, ALICE), count_before(_SPOT, 7, BOB)) == (5, 1)
        claim_only(records, waiting(records, ALICE)[0].id)
        assert (count_before(_ON_DEMAND, 9), count_before(_SPOT, 7)) == (3, 5)

    def test_the_resources_of_a_state_are_listed_whether_held_or_not_or_due_later(self, records: Records) -> None:
        for number, (name, due) in enumerate({"a": -3, "b": -2, "c": -2, "d": 5}.items()):
            enqueue(records, name, state=_PLACED, due=due, created=number)
        enqueue(records, "waiting", due=-3)
        enqueue(records, "unqueued", state=_UNQUEUED, due=-3)
        enqueue(records, "other", kind="model", state=_PLACED, due=-3)
        records.create(draft("never"), now=NOON)
        claimed = records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(-3), state=_PLACED)
        assert claimed is not None
        assert claimed.resource.key.name == "a"
        held_elsewhere = records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(-3), state=_WAITING)
        assert held_elsewhere is not None

        assert in_state(records, _PLACED) == ["a", "b", "c", "d"]
        assert in_state(records, _WAITING) == ["waiting"]
        assert in_state(records, _UNQUEUED) == ["unqueued"]
        assert names(records.in_state(KIND)) == ["unqueued"]

    def test_the_resources_of_a_state_that_were_created_at_once_come_by_their_ids(self, records: Records) -> None:
        for name in "abcdef":
            enqueue(records, name, state=_PLACED, due=0, created=0)
        for _ in range(3):
            assert records.claim_next(KIND, worker="w", lease=LEASE, now=NOON, state=_PLACED) is not None
        found = [each.id for each in records.in_state(KIND, _PLACED)]
        assert len(found) == 6
        assert found == sorted(found)

    def test_a_change_can_move_a_resource_to_another_state(self, records: Records) -> None:
        made = enqueue(records, "a", priority=_SPOT)
        placed = records.apply(made, Change(state=_PLACED), now=NOON)
        assert placed is not None
        assert (heads(records, "x"), in_state(records, _PLACED)) == ([], ["a"])
        assert records.apply(placed, Change(status="x"), now=NOON) is not None
        assert in_state(records, _PLACED) == ["a"]

        claimed = records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(2), state=_PLACED)
        assert claimed is not None
        back = Change(state=_WAITING, due_at=minutes(1))
        assert records.apply_claimed(claimed, back, now=minutes(2), release=True) is not None
        assert heads(records, "x") == [QueuedResource(made.id, ALICE, "x", _SPOT, minutes(1))]
        assert in_state(records, _PLACED) == []

    def test_a_change_that_comes_too_late_moves_nothing(self, records: Records) -> None:
        made = enqueue(records, "a")
        assert records.apply(made, Change(status="x"), now=NOON) is not None
        assert records.apply(made, Change(state=_PLACED), now=NOON) is None
        assert (in_state(records, _WAITING), in_state(records, _PLACED)) == (["a"], [])

    def test_a_resource_that_is_not_due_is_in_no_state(self, records: Records) -> None:
        """Whatever ended it: when it is due again, it stands in no queue until a change says so."""
        settled = enqueue(records, "settled")
        records.apply(settled, Change(state=_PLACED, is_settling=True), now=NOON)
        records.create(draft("never", queue="x", state=_WAITING), now=NOON)
        for name, change in (
            ("released", Change(state=_WAITING)),
            ("released-settled", Change(state=_WAITING, due_at=minutes(1), is_settling=True)),
        ):
            claimed = claim_only(records, enqueue(records, name).id)
            assert records.apply_claimed(claimed, change, now=minutes(5), release=True) is not None
        assert [in_state(records, state) for state in QueueState] == [[], [], []]

        for name in ("settled", "never", "released", "released-settled"):
            resource = records.load(key(name))
            assert records.apply(resource, Change(due_at=minutes(1)), now=NOON) is not None
        assert sorted(in_state(records, _UNQUEUED)) == ["never", "released", "released-settled", "settled"]
        assert (heads(records, "x"), count(records, ["x"])) == ([], 0)


def enqueue(
    records: Records,
    name: str,
    *,
    account: str = ALICE,
    kind: str = KIND,
    queue: str | None = "x",
    state: QueueState = _WAITING,
    priority: Priority = _ON_DEMAND,
    due: float = 1,
    created: float = 0,
) -> Resource:
    """Create a resource that is due, and created, these minutes after noon."""
    queued = draft(name, account=account, kind=kind, due_at=minutes(due), state=state, queue=queue, priority=priority)
    return records.create(queued, now=minutes(created))


def heads(records: Records, *queues: str) -> Sequence[QueuedResource]:
    return records.heads(KIND, queues)


def waiting(records: Records, account: str) -> Sequence[QueuedResource]:
    return records.waiting(KIND, "x", accounts=[account], limit=9)


def count(records: Records, queues: Sequence[str], account: str | None = None) -> int:
    return records.count_waiting(KIND, queues, account=account)


def in_state(records: Records, state: QueueState) -> list[str]:
    return names(records.in_state(KIND, state))


def claim_only(records: Records, resource: ResourceId) -> Claim:
    claimed = records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(5), only=resource, state=_WAITING)
    assert claimed is not None
    return claimed
