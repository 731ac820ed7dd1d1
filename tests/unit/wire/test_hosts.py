import pytest

from trainyard.wire.hosts import Hosts

HOSTS = Hosts(["yard.example.com", "127.0.0.1", "[::1]"])


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1:9000",
        "localhost",
        "LOCALHOST:80",
        "yard.example.com.",
        "[::1]:9000",
        "elsewhere.net",
        "s3.amazonaws.com",
        "s3.eu-west-1.amazonaws.com",
        "s3-eu-west-1.amazonaws.com",
        "sts.amazonaws.com",
    ],
)
def test_a_host_that_is_nobodys_bucket_leaves_it_to_the_path(host: str) -> None:
    assert HOSTS.bucket(host) is None


@pytest.mark.parametrize(
    ("host", "bucket"),
    [
        ("data.localhost:9000", "data"),
        ("my.data.yard.example.com:443", "my.data"),
        ("Data.Yard.Example.Com", "data"),
        ("data.s3.amazonaws.com", "data"),
        ("my.data.s3.eu-west-1.amazonaws.com", "my.data"),
        ("data.s3-eu-west-1.amazonaws.com", "data"),
        ("data.s3.dualstack.eu-west-1.amazonaws.com", "data"),
        ("data.s3.cn-north-1.amazonaws.com.cn", "data"),
        ("s3.data.s3.amazonaws.com", "s3.data"),
    ],
)
def test_a_bucket_before_a_served_name_is_the_bucket(host: str, bucket: str) -> None:
    assert HOSTS.bucket(host) == bucket


def test_the_longest_served_name_decides() -> None:
    assert Hosts(["example.com", "yard.example.com"]).bucket("data.yard.example.com") == "data"
