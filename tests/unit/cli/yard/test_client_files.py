import json

import pytest
from botocore.loaders import create_loader
from botocore.regions import EndpointResolver

from trainyard.cli.yard.client_files import default_endpoints, endpoints, with_default_profile

VALUES = {"region": "us-east-1", "endpoint_url": "http://127.0.0.1:4780"}
SECTION = "[default]\nregion = us-east-1\nendpoint_url = http://127.0.0.1:4780\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", SECTION),
        ("[default]\nrole_arn = arn:x\ns3 =\n  max_concurrent_requests = 3\n", SECTION),
        ("[profile work]\nregion = eu-west-1\n", "[profile work]\nregion = eu-west-1\n\n" + SECTION),
        ("# mine\n[default]\na = 1\n[profile b]\nc = 2\n", "# mine\n" + SECTION + "\n[profile b]\nc = 2\n"),
        ("[profile b]\nc = 2\n[default]\na = 1\n", "[profile b]\nc = 2\n" + SECTION),
        ("[profile default]\na = 1\n", SECTION),
        ("[default]\na = 1\n[profile b]\nc = 2\n[profile default]\nd = 3", SECTION + "\n[profile b]\nc = 2\n"),
    ],
)
def test_the_default_profile_is_replaced_and_others_are_left_alone(before: str, after: str) -> None:
    assert with_default_profile(before, VALUES) == after


def test_every_region_of_every_partition_asks_sts_at_the_yard() -> None:
    document = json.loads(endpoints("https://127.0.0.1:4781"))

    resolver = EndpointResolver(document)
    regions = [region for partition in document["partitions"] for region in partition["regions"]]
    assert len(regions) > 30
    assert {resolver.construct_endpoint("sts", region)["hostname"] for region in regions} == {"127.0.0.1:4781"}


def test_endpoints_of_other_services_stay_as_they_were() -> None:
    usual, ours = json.loads(default_endpoints()), json.loads(endpoints("https://127.0.0.1:4781"))

    assert usual == create_loader().load_data("endpoints")
    for document in (usual, ours):
        for partition in document["partitions"]:
            del partition["services"]["sts"]
    assert ours == usual
