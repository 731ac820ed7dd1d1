from tests.unit.server.control.bench import Bench


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
