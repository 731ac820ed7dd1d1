from pathlib import Path

import pytest

from trainyard._sdk.connection import ClientTarget, KeyPair
from trainyard.cli.yard.overrides import Override, find_overrides

OURS = b"-----BEGIN CERTIFICATE-----\nyard\n-----END CERTIFICATE-----\n"
PUBLIC = b"-----BEGIN CERTIFICATE-----\npublic\n-----END CERTIFICATE-----\n"
COMPANY = b"-----BEGIN CERTIFICATE-----\ncompany\n-----END CERTIFICATE-----\n"


@pytest.fixture
def target(tmp_path: Path) -> ClientTarget:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(OURS + PUBLIC)
    keys = KeyPair("AKIAANNA", "hers")
    return ClientTarget("http://127.0.0.1:4780", "https://127.0.0.1:4781", keys, "eu-west-3", "", bundle)


def found(target: ClientTarget, folder: Path, **variables: str) -> dict[str, Override]:
    return {each.name: each for each in find_overrides(target, variables, bundles=folder / "bundles")}


def test_variables_that_lead_to_the_yard_override_nothing(target: ClientTarget, tmp_path: Path) -> None:
    ours = {"AWS_ENDPOINT_URL": "https://127.0.0.1:4781", "AWS_ACCESS_KEY_ID": "AKIAANNA", "AWS_REGION": "eu-west-3"}
    assert found(target, tmp_path, **ours, AWS_CA_BUNDLE=str(target.ca_bundle), AWS_PROFILE="") == {}


def test_each_variable_has_its_consequence_and_a_command(target: ClientTarget, tmp_path: Path) -> None:
    names = (
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_SESSION_TOKEN",
        "SAGEMAKER_USER_CONFIG_OVERRIDE",
    )
    overrides = found(target, tmp_path, **dict.fromkeys(names, "other"))
    assert set(overrides) == set(names)
    assert all(each.remedy == f"unset {name}" and each.consequence for name, each in overrides.items())


def test_another_bundle_is_joined_with_the_authority_of_the_yard(target: ClientTarget, tmp_path: Path) -> None:
    company = tmp_path / "company.pem"
    company.write_bytes(COMPANY)
    override = found(target, tmp_path, AWS_CA_BUNDLE=str(company))["AWS_CA_BUNDLE"]
    joint = Path(override.remedy.removeprefix("export AWS_CA_BUNDLE="))
    assert b"yard" in joint.read_bytes()
    assert b"company" in joint.read_bytes()
    # With the export, nothing is left to say.
    assert found(target, tmp_path, AWS_CA_BUNDLE=str(joint)) == {}


def test_a_bundle_that_is_missing_is_replaced_by_that_of_the_yard(target: ClientTarget, tmp_path: Path) -> None:
    override = found(target, tmp_path, AWS_CA_BUNDLE="/nowhere.pem")["AWS_CA_BUNDLE"]
    assert override.remedy == f"export AWS_CA_BUNDLE={target.ca_bundle}"


def test_a_proxy_without_an_exception_for_the_yard_is_named(target: ClientTarget, tmp_path: Path) -> None:
    proxy = "http://proxy.example:3128"
    override = found(target, tmp_path, HTTPS_PROXY=proxy, no_proxy="intranet")["HTTPS_PROXY"]
    assert override.remedy == "export no_proxy=intranet,127.0.0.1 NO_PROXY=intranet,127.0.0.1"
    for exceptions in ("127.0.0.1", "intranet, 127.0.0.1", "*"):
        assert found(target, tmp_path, http_proxy=proxy, NO_PROXY=exceptions) == {}
