"""The programs that a job finds in its environment."""

from pathlib import Path

from trainyard.instance.agent.executables import find_executable


def test_the_first_environment_that_has_it_wins_and_is_named_as_the_program_sees_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "a-tool").write_text("#!/bin/sh\n")
    (second / "a-tool").chmod(0o700)
    environments = [(first, "/opt/ml/first"), (second, "/opt/ml/second")]
    assert find_executable("a-tool", environments) == "/opt/ml/second/a-tool"  # the other cannot be executed
    (first / "a-tool").chmod(0o700)
    assert find_executable("a-tool", environments) == "/opt/ml/first/a-tool"


def test_the_path_of_the_system_comes_last() -> None:
    found = find_executable("sh", [])
    assert found is not None
    assert found.endswith("/bin/sh")
    assert find_executable("no-such-tool", []) is None
