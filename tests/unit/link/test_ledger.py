from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt
from trainyard.link.ledger import Ledger, LedgerEntry, LedgerKind


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    Ledger(file).add(LedgerKind.CGROUP, path="/sys/fs/cgroup/a b")
    Ledger(file).add(LedgerKind.PROCESS, pid=7, started="boot:1")

    assert Ledger(file).entries() == [
        LedgerEntry(LedgerKind.CGROUP, {"path": "/sys/fs/cgroup/a b"}),
        LedgerEntry(LedgerKind.PROCESS, {"pid": 7, "started": "boot:1"}),
    ]


def test_a_ledger_that_was_never_written_is_empty(tmp_path: Path) -> None:
    assert Ledger(tmp_path / "ledger.jsonl").entries() == []


def test_an_entry_that_a_crash_cut_short_counts_as_not_made(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    Ledger(file).add(LedgerKind.FOLDER, path="/a")
    with file.open("ab") as opened:
        opened.write(b'{"kind": "fol')

    assert Ledger(file).entries() == [LedgerEntry(LedgerKind.FOLDER, {"path": "/a"})]


@pytest.mark.parametrize("line", ["{", "[]", '{"path": "/a"}', '{"kind": "volcano"}'])
def test_a_line_that_is_no_entry_is_an_error_rather_than_something_left_behind(tmp_path: Path, line: str) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text(line + "\n")

    with pytest.raises(Corrupt, match="not an entry"):
        Ledger(file).entries()
