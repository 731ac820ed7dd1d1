import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.engines import namespace_probe, probe
from trainyard.engines.probe import PROBES, Capability, measure_capacity, probe_frameworks, probe_machine


@pytest.fixture(scope="module")
def capabilities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Capability]:
    folder = tmp_path_factory.mktemp("machine") / "not" / "yet" / "there"
    return {capability.name: capability for capability in probe_machine(folder)}


def test_every_question_is_answered_with_what_follows_from_it(capabilities: dict[str, Capability]) -> None:
    assert list(capabilities) == [question.name for question in PROBES]
    for question in PROBES:
        capability = capabilities[question.name]
        assert capability.detail
        assert capability.consequence == (question.if_so if capability.ok else question.if_not)


def test_the_answer_on_namespaces_is_that_of_the_kernel(capabilities: dict[str, Capability]) -> None:
    direct = subprocess.run(["unshare", "--user", "--map-root-user", "true"], capture_output=True, check=False)

    assert capabilities["user namespaces"].ok == (direct.returncode == 0)


def test_a_framework_is_found_under_each_of_its_distributions() -> None:
    # The project's own environment has xgboost-cpu.
    found = {each.name: each for each in probe_frameworks()}
    assert (found["xgboost"].ok, found["xgboost"].detail) == (True, importlib.metadata.version("xgboost-cpu"))


def test_probing_leaves_nothing_behind(tmp_path: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text(), Path("/proc/self/ns/user").readlink()

    list(probe_machine(tmp_path))

    assert list(tmp_path.iterdir()) == []
    assert (Path("/proc/self/mountinfo").read_text(), Path("/proc/self/ns/user").readlink()) == before


@pytest.mark.parametrize("name", sorted(namespace_probe.PROBES))
def test_a_trial_works_or_says_in_one_line_why_not(tmp_path: Path, name: str) -> None:
    missing = tmp_path / "missing"  # so that those which need the folder fail

    result = subprocess.run(
        [sys.executable, "-S", namespace_probe.__file__, name, str(missing)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(result.stderr.splitlines()) == result.returncode <= 1


def test_a_program_that_fails_does_not_count_as_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho no daemon >&2\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    answer = probe.probe_docker(tmp_path)

    assert not answer.ok
    assert answer.detail == f"{docker} does not answer: no daemon"


def test_a_program_that_answers_is_found_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho 5.4.2\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    answer = probe.probe_podman(tmp_path)

    assert answer.ok
    assert answer.detail == f"{podman}: 5.4.2"


def test_capacity_is_within_that_of_the_machine(tmp_path: Path) -> None:
    found = measure_capacity(tmp_path / "home")

    assert 0 < found.cores <= (os.cpu_count() or 1)
    assert 0 < found.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found.gpus >= 0
    assert found.disk_free_bytes > 0
