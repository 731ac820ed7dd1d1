"""Which rank failed first, from the report of a launcher."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainyard.instance.agent.results.rank_failures import first_failure
from trainyard.instance.launch.report import add_failure, make_failure
from trainyard.instance.sandbox.contract import ProgramExit
from trainyard.link.folders import InstanceFolder

RESET = b"RuntimeError: [gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.64.0.2]:4711\n"


@pytest.fixture
def folder(tmp_path: Path) -> InstanceFolder:
    made = InstanceFolder(tmp_path)
    made.launch.mkdir()
    return made


def tell(folder: InstanceFolder, *failures: dict[str, Any]) -> None:
    for told in failures:
        add_failure(str(folder.launch), told)


def test_the_first_that_died_failed_first(folder: InstanceFolder) -> None:
    tell(
        folder, make_failure(4, code=-9, at_us=20, tail=b""), make_failure(2, code=1, at_us=10, tail=b"ValueError: x\n")
    )
    first = first_failure(folder)
    assert first is not None
    assert (first.rank, first.ended, first.at_us, first.tail.lines()) == (
        2,
        ProgramExit(1, None),
        10,
        ["ValueError: x"],
    )


def test_one_that_only_lost_its_connection_did_not_fail_first(folder: InstanceFolder) -> None:
    tell(folder, make_failure(0, code=1, at_us=10, tail=RESET), make_failure(3, code=-9, at_us=20, tail=b"step 7\n"))
    first = first_failure(folder)
    assert first is not None
    assert (first.rank, first.ended) == (3, ProgramExit(None, 9))


def test_a_server_has_no_rank(folder: InstanceFolder) -> None:
    tell(folder, make_failure(None, code=1, at_us=10, tail=b"address in use"))
    first = first_failure(folder)
    assert first is not None
    assert first.rank is None


DEEP = "[" * 100_000
INFINITE = '[{"rank": 1, "code": Infinity, "at_us": 1, "tail": ""}]'


@pytest.mark.parametrize(
    "text",
    ["", "[", "{}", "7", '[{"rank": 1}]', '[{"rank": 1, "code": [], "at_us": 1, "tail": ""}]', DEEP, INFINITE],
    ids=lambda text: text[:40],
)
def test_an_invalid_report_is_ignored(folder: InstanceFolder, text: str) -> None:
    assert first_failure(folder) is None
    (folder.launch / "failures.json").write_text(text)
    assert first_failure(folder) is None


def test_a_link_out_of_the_folder_is_not_followed(folder: InstanceFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(json.dumps([make_failure(1, code=1, at_us=1, tail=b"the yard's own")]))
    (folder.launch / "failures.json").symlink_to(tmp_path / "secret")
    assert first_failure(folder) is None
