from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.services.sagemaker.requests import channel
from tests.unit.server.services.sagemaker.rules import rule
from trainyard.engines.contract import Capabilities, Capacity
from trainyard.link.contract import SERVED, ObjectsSpec, ProfilerSpec, SyncSpec

SCRIPT = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://data/code/sourcedir.tar.gz"}


def test_the_variables_of_a_request_win_over_those_of_the_yard(bench: Bench) -> None:
    bench.start(Environment={"AWS_ENDPOINT_URL": "https://elsewhere", "EMPTY": ""})
    environment = bench.agent().spec.environment
    assert (environment["AWS_ENDPOINT_URL"], environment["EMPTY"]) == ("https://elsewhere", "")
    assert environment["AWS_REGION"] == environment["AWS_DEFAULT_REGION"] == "eu-west-3"


def test_an_isolated_instance_has_neither_credentials_nor_the_address_of_the_yard(bench: Bench) -> None:
    bench.start(EnableNetworkIsolation=True)
    spec = bench.agent().spec
    assert spec.is_isolated
    names = {name for name in spec.environment if name.startswith("AWS_")}
    assert names == {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_EC2_METADATA_DISABLED"}


def elsewhere(bench: Bench, **context: Any) -> Bench:
    """The yard with its engine on other machines."""
    bench.engine.is_here = False
    specs = bench.work.specs
    made = replace(specs, context=replace(specs.context, advertised="http://yard.lan:4780", **context))
    return replace(bench, work=replace(bench.work, specs=made))


def test_an_instance_elsewhere_gets_objects_from_the_yard_with_the_keys_of_its_attempt(bench: Bench) -> None:
    elsewhere(bench).start()
    spec = bench.agent().spec
    assert (spec.objects.url, spec.objects.endpoint, spec.objects.region) == (
        SERVED,
        "http://yard.lan:4780",
        "eu-west-3",
    )
    key = bench.work.records.access_key(bench.job().attempts[0].key_id)
    assert (spec.objects.access_key_id, spec.objects.secret_access_key) == (key.id, key.secret)
    assert spec.objects.session_token == key.session_token
    assert spec.environment["AWS_ENDPOINT_URL"] == "http://yard.lan:4780"


def test_an_isolated_instance_elsewhere_gets_its_data_and_its_program_no_keys(bench: Bench) -> None:
    elsewhere(bench).start(EnableNetworkIsolation=True)
    spec = bench.agent().spec
    assert spec.objects.url == SERVED
    assert not {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"} & spec.environment.keys()


def test_an_instance_elsewhere_reads_a_shared_s3_itself(bench: Bench) -> None:
    shared = ObjectsSpec("/staging", url="s3://shared/yard", endpoint="http://s3.lan", access_key_id="AKIA")
    elsewhere(bench, objects=shared).start()
    assert bench.agent().spec.objects == shared


def test_instances_know_how_they_are_profiled_and_that_the_yard_evaluates_the_rules(bench: Bench) -> None:
    parameters = {"LocalPath": "/tmp/profiles", "DataloaderProfilingConfig": "{}"}
    config = {
        "S3OutputPath": "s3://data/profile",
        "ProfilingIntervalInMilliseconds": 200,
        "ProfilingParameters": parameters,
    }
    bench.start(ProfilerConfig=config, ProfilerRuleConfigurations=[rule("ProfilerReport")])
    spec = bench.agent().spec
    assert spec.profiler == ProfilerSpec(
        SyncSpec("s3://data/profile/mnist/profiler-output", "/tmp/profiles"),
        interval_ms=200,
        is_exported=True,
        parameters=parameters,
    )
    assert "/tmp/profiles" in spec.extra_paths


def test_a_job_without_a_profiler_can_get_one_later(bench: Bench) -> None:
    bench.start(ProfilerConfig={"DisableProfiler": True})
    profiler = bench.agent().spec.profiler
    assert profiler is not None
    assert not profiler.is_enabled


def test_every_instance_knows_all_hosts_and_what_it_must_not_see(bench: Bench) -> None:
    bench.start(ResourceConfig={"InstanceType": "local", "InstanceCount": 2, "VolumeSizeInGB": 1})
    for number in (1, 2):
        spec = bench.agent(instance=f"algo-{number}").spec
        assert list(spec.hosts) == ["algo-1", "algo-2"]
        assert (spec.instance, spec.instance_type, spec.instance_group) == (
            f"algo-{number}",
            "local",
            "homogeneousCluster",
        )
        assert list(spec.hidden) == [str(bench.anna.yard.compute.jobs.parent)]


@pytest.mark.parametrize(
    ("asked", "entrypoint", "arguments"),
    [
        ({}, (), ("train",)),
        ({"ContainerArguments": ["fit"]}, (), ("fit",)),
        ({"ContainerEntrypoint": ["python", "-m"], "ContainerArguments": ["fit"]}, ("python", "-m", "fit"), ()),
    ],
)
def test_where_images_run_a_spec_names_the_image_and_the_command(
    bench: Bench, asked: dict[str, Any], entrypoint: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    bench.engine.able = Capabilities(images="")
    own = {"TrainingImage": "mine:1", "TrainingInputMode": "File", **asked}
    bench.start(AlgorithmSpecification=own, HyperParameters=None)
    spec = bench.agent().spec
    assert spec.container is not None
    told = (spec.container.image, tuple(spec.container.entrypoint), tuple(spec.container.arguments))
    assert told == ("mine:1", entrypoint, arguments)


def test_a_spec_names_the_interpreter_of_its_image_and_the_environments_of_its_user(bench: Bench) -> None:
    bench.start(AlgorithmSpecification={"TrainingImage": "pytorch-training:1.6", "TrainingInputMode": "File"})
    spec = bench.agent().spec
    (note,) = spec.notes
    assert note.startswith("The image pytorch-training:1.6 maps to an environment with ")
    assert spec.environments.endswith(f"/environments/{spec.account}")
    assert spec.environments_limit_bytes == 20 * 1024**3


def test_a_program_may_have_many_processes_but_not_any_number(bench: Bench) -> None:
    bench.start()
    limits = bench.agent().spec.limits
    assert limits.cpus is not None
    assert limits.processes == 1024 + int(512 * limits.cpus)


def test_a_spec_names_the_folders_that_are_kept_in_s3(bench: Bench) -> None:
    bench.start(
        CheckpointConfig={"S3Uri": "s3://data/ck", "LocalPath": "/state"},
        TensorBoardOutputConfig={"S3OutputPath": "s3://data/tb", "LocalPath": "/state/runs"},
    )
    spec = bench.agent().spec
    assert spec.checkpoint == SyncSpec("s3://data/ck", "/state")
    assert spec.tensorboard is not None
    assert spec.tensorboard.path == "/state/runs"
    assert list(spec.extra_paths) == ["/state"]


def test_folders_under_opt_ml_need_no_place_of_their_own(bench: Bench) -> None:
    bench.start(CheckpointConfig={"S3Uri": "s3://data/ck"})
    assert list(bench.agent().spec.extra_paths) == []


def test_each_instance_has_the_type_and_the_channels_of_its_group(tmp_path: Path) -> None:
    groups = [
        {"InstanceGroupName": "one", "InstanceType": "ml.m5.large", "InstanceCount": 1},
        {"InstanceGroupName": "two", "InstanceType": "local", "InstanceCount": 2},
    ]
    shared_out = {"S3DataDistributionType": "ShardedByS3Key", "InstanceGroupNames": ["two"]}
    with open_bench(tmp_path, capacity=Capacity.of_machine(slots=3, cpus=4.0, memory_bytes=16 * 1024**3)) as bench:
        bench.start(
            ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1},
            InputDataConfig=[channel("all", "s3://data/train/"), channel("some", "s3://data/train/", **shared_out)],
        )
        specs = [bench.agent(instance=f"algo-{number}").spec for number in (1, 2, 3)]

    assert [(spec.instance_type, spec.instance_group) for spec in specs] == [
        ("ml.m5.large", "one"),
        ("local", "two"),
        ("local", "two"),
    ]
    assert [[(each.name, list(each.keys)) for each in spec.channels[1:]] for spec in specs] == [
        [],
        [("some", ["train/1.csv", "train/3.csv"])],
        [("some", ["train/2.csv"])],
    ]
    assert [list(group.hosts) for group in specs[0].groups] == [["algo-1"], ["algo-2", "algo-3"]]


def test_ranks_follow_the_order_of_hosts_that_programs_see(bench: Bench) -> None:
    many = {"InstanceType": "local", "InstanceCount": 11, "VolumeSizeInGB": 1}
    bench.start(ResourceConfig=many, HyperParameters=SCRIPT | {"sagemaker_torch_distributed_enabled": "true"})
    launch = bench.agent().spec.launch
    assert launch.kind == "torchrun"
    assert list(launch.processes)[:4] == ["algo-1", "algo-10", "algo-11", "algo-2"]
    assert set(launch.processes.values()) == {1}


def test_only_the_groups_that_are_named_are_launched(bench: Bench) -> None:
    groups = [
        {"InstanceGroupName": name, "InstanceType": "local", "InstanceCount": count}
        for name, count in (("feeders", 1), ("trainers", 2))
    ]
    named = {"sagemaker_mpi_enabled": "true", "sagemaker_distribution_instance_groups": '["trainers"]'}
    bench.start(ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1}, HyperParameters=SCRIPT | named)
    assert dict(bench.agent().spec.launch.processes) == {"algo-2": 1, "algo-3": 1}
