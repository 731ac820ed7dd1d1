import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.containers.request import ContainerMount, ContainerRequest, run_command, write_variables
from trainyard.instance.sandbox.contract import SandboxNetwork
from trainyard.link.contract import LimitSpec


@pytest.fixture
def request_(tmp_path: Path) -> ContainerRequest:
    return ContainerRequest(
        name="trainyard-1",
        folder=tmp_path / "jobs" / "abc" / "1" / "algo-1",
        scratch_folder=tmp_path,
        tool="/usr/bin/podman",
        is_podman=True,
        image="localhost/mine:1",
        arguments=("train",),
    )


def options(request: ContainerRequest) -> dict[str, list[str]]:
    """The values of each option that has one."""
    words = run_command(request)
    words = words[2 : words.index(request.image)]
    found: dict[str, list[str]] = {}
    for name, value in itertools.pairwise(words):
        if name.startswith("--"):
            found.setdefault(name, []).append(value)
    return found


def test_an_image_runs_with_its_own_entry_point_and_the_arguments_of_the_job(request_: ContainerRequest) -> None:
    words = run_command(request_)

    assert words[:2] == ["/usr/bin/podman", "run"]
    assert words[words.index("localhost/mine:1") :] == ["localhost/mine:1", "train"]
    assert "--entrypoint" not in words


def test_an_entry_point_of_several_words_is_one_that_docker_understands_too(request_: ContainerRequest) -> None:
    words = run_command(replace(request_, entrypoint=("python3", "-u"), arguments=("run.py",)))

    assert words[words.index("--entrypoint") + 1] == "python3"
    assert words[words.index("localhost/mine:1") :] == ["localhost/mine:1", "-u", "run.py"]


def test_images_are_never_pulled_and_containers_carry_the_labels_by_which_they_are_found(
    request_: ContainerRequest, tmp_path: Path
) -> None:
    found = options(request_)

    assert found["--pull"] == ["never"]
    assert found["--label"] == [
        f"trainyard.instance={tmp_path}/jobs/abc/1/algo-1",
        f"trainyard.jobs={tmp_path}/jobs",
    ]


def test_variables_are_not_on_the_command_line_where_everybody_could_read_them(request_: ContainerRequest) -> None:
    request = replace(request_, environment={"AWS_SECRET_ACCESS_KEY": "secret", "JSON": '{"a": "#b"} '})

    write_variables(request)

    assert not any("secret" in word for word in run_command(request))
    assert request.variables_file.read_text() == 'AWS_SECRET_ACCESS_KEY=secret\nJSON={"a": "#b"} \n'
    assert request.variables_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("value", ["two\nlines", "ends with a return\r", "x" * 70_000])
def test_a_variable_that_no_file_can_hold_is_passed_as_a_word(request_: ContainerRequest, value: str) -> None:
    request = replace(request_, environment={"ODD": value})

    write_variables(request)

    assert options(request)["--env"] == [f"ODD={value}"]
    assert request.variables_file.read_text() == ""


def test_limits_become_those_of_the_container_and_memory_holds_for_dev_shm_too(request_: ContainerRequest) -> None:
    found = options(replace(request_, limits=LimitSpec(cpus=1.5, memory_bytes=1000, processes=20)))

    assert found["--cpus"] == ["1.5"]
    assert found["--memory"] == found["--memory-swap"] == found["--shm-size"] == ["1000"]
    assert found["--pids-limit"] == ["20"]


def test_limits_that_the_tool_cannot_set_are_left_out_and_reported(request_: ContainerRequest) -> None:
    request = replace(request_, limits=LimitSpec(cpus=2, memory_bytes=1000, processes=20), enforced=("memory",))

    found = options(request)

    assert "--memory" in found
    assert "--cpus" not in found
    assert "--pids-limit" not in found
    assert [sentence.split(" is not")[0] for sentence in request.not_enforced] == [
        "The limit of 2 CPUs",
        "The limit of 20 processes",
    ]


def test_a_job_has_the_network_of_the_host_or_none_or_that_of_its_instances(request_: ContainerRequest) -> None:
    assert options(request_)["--network"] == ["host"]
    assert options(replace(request_, network=SandboxNetwork()))["--network"] == ["none"]
    joined = options(
        replace(request_, network=SandboxNetwork(7), hosts=[("algo-1", "10.0.0.1"), ("algo-2", "10.0.0.2")])
    )
    assert joined["--network"] == [f"ns:/proc/{os.getpid()}/fd/7"]
    assert joined["--add-host"] == ["algo-1:10.0.0.1", "algo-2:10.0.0.2"]


def test_folders_are_shown_to_be_written_to_be_read_or_to_be_changed_without_a_trace(
    request_: ContainerRequest,
) -> None:
    mounts = [
        ContainerMount(Path("/a"), "/opt/ml/model"),
        ContainerMount(Path("/b"), "/opt/ml/input/data/b", is_read_only=True),
        ContainerMount(Path("/c"), "/opt/ml/input/data/c", is_copy_on_write=True),
    ]

    found = options(replace(request_, mounts=mounts))

    assert found["--volume"] == ["/a:/opt/ml/model", "/b:/opt/ml/input/data/b:ro", "/c:/opt/ml/input/data/c:O"]


def test_the_options_of_the_machine_come_last_so_that_they_win(request_: ContainerRequest) -> None:
    words = run_command(replace(request_, options=("--user", "1000:1000")))

    assert words[-4:] == ["--user", "1000:1000", "localhost/mine:1", "train"]


def test_only_podman_hands_its_output_on_to_the_program(request_: ContainerRequest) -> None:
    assert options(request_)["--log-driver"] == ["passthrough"]
    assert options(replace(request_, is_podman=False))["--log-driver"] == ["none"]


@pytest.mark.parametrize(
    "mount",
    [
        ContainerMount(Path("/jobs/extra/0"), "/state:O,upperdir=/root,workdir=/srv"),
        ContainerMount(Path("/jobs/extra/0"), "/state:suid"),
        ContainerMount(Path("/jobs/ml/a:/etc"), "/opt/ml/a"),
    ],
)
def test_a_path_with_a_colon_is_refused(request_: ContainerRequest, mount: ContainerMount) -> None:
    with pytest.raises(InvalidRequest, match="path with a colon"):
        run_command(replace(request_, mounts=[mount]))


def test_no_program_can_read_the_packets_of_others_or_create_devices(request_: ContainerRequest) -> None:
    assert options(request_)["--cap-drop"] == ["NET_RAW", "MKNOD"]
