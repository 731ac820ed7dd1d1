import os
import stat
from pathlib import Path

import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.link.agent_process import announce_agent
from trainyard.link.containers import (
    abandoned_containers,
    container_labels,
    reclaim_files,
    remove_containers,
    run_tool,
    written_folders,
)
from trainyard.link.ledger import Ledger, LedgerKind


def pretended(folder: Path, body: str) -> str:
    program = folder / "tool"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_what_a_tool_says_last_is_why_it_failed(tmp_path: Path) -> None:
    tool = pretended(tmp_path, "echo first >&2; echo 'no such image' >&2; exit 125")

    with pytest.raises(Unavailable, match="no such image"):
        run_tool(tool, "inspect", "x")


def test_a_tool_that_is_not_there_or_does_not_end_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        run_tool(str(tmp_path / "none"), "ps")
    with pytest.raises(Unavailable):
        run_tool(pretended(tmp_path, "exec sleep 60"), "ps", timeout_s=0.05)


def test_a_container_that_cannot_be_removed_is_reported(tmp_path: Path) -> None:
    tool = pretended(tmp_path, '[ "$1" = ps ] && echo abc; exit 0')

    with pytest.raises(Unavailable, match="abc"):
        remove_containers(tool, tmp_path, within_s=0.05)


def test_the_folders_a_container_writes_to_are_found_if_the_tool_knows_them(tmp_path: Path) -> None:
    of_podman = pretended(tmp_path, "echo /layer; echo /volumes")
    assert written_folders(of_podman, "abc") == [Path("/layer"), Path("/volumes")]
    of_docker = pretended(tmp_path, 'case "$3" in *Static*) exit 1;; esac; echo /layer')
    assert written_folders(of_docker, "abc") == [Path("/layer")]
    assert written_folders(pretended(tmp_path, "echo '<no value>'"), "abc") == []
    assert written_folders(pretended(tmp_path, "exit 1"), "abc") == []


def test_the_labels_of_an_instance_name_it_and_all_jobs_of_its_yard() -> None:
    assert container_labels(Path("/home/jobs/abc/1/algo-1")) == (
        "trainyard.instance=/home/jobs/abc/1/algo-1",
        "trainyard.jobs=/home/jobs",
    )


def test_containers_are_abandoned_only_when_their_agents_are_gone(tmp_path: Path) -> None:
    instance = tmp_path / "jobs" / "abc" / "1" / "algo-1"
    instance.mkdir(parents=True)
    tool = pretended(tmp_path, f'[ "$1" = ps ] && echo one || echo {instance}')
    Ledger(instance / "ledger.jsonl").add(LedgerKind.CONTAINER, tool=tool, instance=str(instance))

    assert abandoned_containers(tmp_path / "jobs") == [(tool, instance)]
    announce_agent(instance)
    assert abandoned_containers(tmp_path / "jobs") == []


def test_a_tool_that_is_gone_tells_of_no_containers(tmp_path: Path) -> None:
    instance = tmp_path / "jobs" / "abc" / "1" / "algo-1"
    instance.mkdir(parents=True)
    Ledger(instance / "ledger.jsonl").add(LedgerKind.CONTAINER, tool=str(tmp_path / "none"), instance=str(instance))

    assert abandoned_containers(tmp_path / "jobs") == []


def test_files_that_are_ours_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    reclaim_files(pretended(tmp_path, "exit 1"), tmp_path)

    assert (tmp_path / "file").stat().st_uid == os.geteuid()
