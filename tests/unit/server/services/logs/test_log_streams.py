from pathlib import Path

import pytest

from tests.unit.server.services.accounts import NOON, Accounts
from tests.unit.server.services.logs.group import NOON_MS, Group
from trainyard.formats.logs import LogWriter
from trainyard.server.log_streams import find_orphans
from trainyard.server.records.contract import Draft, ResourceId, ResourceKey
from trainyard.wire.fault import Fault


def test_folders_without_a_stream_are_found_for_the_sweep(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    group.put("s", "kept")
    left = accounts.yard.logs / "00000000-0000-7000-8000-000000000000"
    with LogWriter(left) as writer:
        writer.append(b"of a stream deleted just before a crash\n", 1)
    assert list(find_orphans(accounts.yard.records, accounts.yard.logs)) == [left]


def test_a_stream_may_lie_in_a_folder_that_another_program_writes(accounts: Accounts, tmp_path: Path) -> None:
    group = Group.made_by(accounts.anna)
    elsewhere = tmp_path / "attempt"
    parent = accounts.yard.records.load(ResourceKey(accounts.anna.account, "log-group", "/jobs"))
    key = ResourceKey(accounts.anna.account, "log-stream", "/jobs:job/algo-1")
    draft = Draft(key, "eu-west-3", {"folder": str(elsewhere)}, parent=ResourceId(parent.id))
    accounts.yard.records.create(draft, now=NOON)
    with LogWriter(elsewhere) as writer:
        writer.append(b"step 1\nstep", NOON_MS)
        assert group.get("job/algo-1") == ["step 1"]
        writer.append(b" 2\n", NOON_MS + 9)
        assert group.get("job/algo-1") == ["step 1", "step 2"]
        assert group.search(filterPattern="2") == ["step 2"]
        (described,) = group("DescribeLogStreams")["logStreams"]
        assert described["lastEventTimestamp"] == NOON_MS + 9
        with pytest.raises(Fault, match="belongs to a job"):
            group.put("job/algo-1", "intruder")
    group("DeleteLogStream", logStreamName="job/algo-1")
    assert list(elsewhere.iterdir()), "its owner's files stay"


def test_a_yard_without_logs_has_no_left_over_folders(accounts: Accounts) -> None:
    assert list(find_orphans(accounts.yard.records, accounts.yard.logs)) == []
