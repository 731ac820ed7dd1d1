from tests.unit.server.control.bench import Bench
from trainyard.link.contract import SyncSpec


def test_the_variables_of_a_request_win_over_those_of_the_yard(bench: Bench) -> None:
    bench.start(Environment={"AWS_ENDPOINT_URL": "https://elsewhere", "EMPTY": ""})
    environment = bench.agent().spec.environment
    assert (environment["AWS_ENDPOINT_URL"], environment["EMPTY"]) == ("https://elsewhere", "")
    assert environment["AWS_REGION"] == environment["AWS_DEFAULT_REGION"] == "eu-west-3"


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
        assert list(spec.hidden) == [str(bench.anna.yard.workshop.jobs.parent)]


def test_an_instance_is_told_what_its_image_stands_for_and_where_its_users_environments_are(bench: Bench) -> None:
    bench.start(AlgorithmSpecification={"TrainingImage": "pytorch-training:1.6", "TrainingInputMode": "File"})
    spec = bench.agent().spec
    (note,) = spec.notes
    assert note.startswith("The image pytorch-training:1.6 stands for an environment with ")
    assert spec.environments.endswith(f"/environments/{spec.account}")
    assert spec.environments_limit_bytes == 20 * 1024**3


def test_a_program_may_have_many_processes_but_not_any_number(bench: Bench) -> None:
    bench.start()
    limits = bench.agent().spec.limits
    assert limits.cpus is not None
    assert limits.processes == 1024 + int(512 * limits.cpus)


def test_an_instance_is_told_which_folders_are_kept_in_s3(bench: Bench) -> None:
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
