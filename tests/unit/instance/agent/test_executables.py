"""The programs that a job finds in its environment."""

from pathlib import Path

from trainyard.instance.agent.executables import find_executable


def test_a_program_of_the_environment_is_found_if_it_can_be_executed(tmp_path: Path) -> None:
    tool = tmp_path / "a-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o600)
    assert find_executable("a-tool", tmp_path) is None
    tool.chmod(0o700)
    assert find_executable("a-tool", tmp_path) == str(tool)


def test_the_path_of_the_system_comes_last(tmp_path: Path) -> None:
    found = find_executable("sh", tmp_path)
    assert found is not None
    assert found.endswith("/bin/sh")
    (tmp_path / "sh").touch(mode=0o700)
    assert find_executable("sh", tmp_path) == str(tmp_path / "sh")
    assert find_executable("no-such-tool", tmp_path) is None
