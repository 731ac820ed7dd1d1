from pathlib import Path

import pytest

from trainyard._sdk.connection import access_from_environment, client_environment, profile_target
from trainyard._sdk.profiles import Profile, Profiles, profiles_of
from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound

AUTHORITY, BUNDLE = b"the authority", b"the authority and others"


def profile(name: str = "lab", url: str = "https://10.0.0.5:4781") -> Profile:
    role = "arn:aws:iam::123456789012:role/TrainyardRole"
    return Profile(name, url, "AKIAANNA", "hers", "eu-west-3", "anna", "123456789012", role)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


@pytest.fixture
def profiles(environment: dict[str, str]) -> Profiles:
    return profiles_of(environment)


def test_a_saved_profile_is_the_current_one(profiles: Profiles) -> None:
    profiles.save(profile("lab"), authority=AUTHORITY, bundle=BUNDLE)
    profiles.save(profile("home"), authority=b"", bundle=b"")
    assert (profiles.names(), profiles.current(), profiles.load("lab")) == (["home", "lab"], "home", profile("lab"))


def test_only_the_user_can_read_the_keys(profiles: Profiles, tmp_path: Path) -> None:
    profiles.save(profile(), authority=AUTHORITY, bundle=BUNDLE)
    paths = [path for path in tmp_path.rglob("*") if path.name != "trainyard"]
    assert {oct(path.stat().st_mode & 0o077) for path in paths} == {"0o0"}
    assert "hers" not in repr(profiles.load("lab"))


def test_a_removed_profile_leaves_nothing(profiles: Profiles, tmp_path: Path) -> None:
    profiles.save(profile(), authority=AUTHORITY, bundle=BUNDLE)
    profiles.remove("lab")
    assert (profiles.names(), profiles.current()) == ([], "")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(NotFound):
        profiles.remove("lab")


@pytest.mark.parametrize("name", ["local", "", "../lab", ".lab", "a b"])
def test_some_names_are_refused(profiles: Profiles, name: str) -> None:
    with pytest.raises(InvalidRequest):
        profiles.save(profile(name), authority=b"", bundle=b"")


def test_a_damaged_profile_says_what_to_do(profiles: Profiles, tmp_path: Path) -> None:
    profiles.save(profile(), authority=b"", bundle=b"")
    (tmp_path / ".config/trainyard/profiles/lab/profile.json").write_text("{}")
    with pytest.raises(Corrupt, match="trainyard login"):
        profiles.load("lab")


def test_the_current_profile_leads_to_its_yard(profiles: Profiles, environment: dict[str, str]) -> None:
    assert access_from_environment(environment) is None
    profiles.save(profile(), authority=AUTHORITY, bundle=BUNDLE)
    access = access_from_environment(environment)
    assert access is not None
    assert (access.url, access.access_key_id, access.region) == ("https://10.0.0.5:4781", "AKIAANNA", "eu-west-3")
    # The client trusts the authority of the yard alone.
    assert access.ca_bundle is not None
    assert access.ca_bundle.read_bytes() == AUTHORITY


def test_variables_come_before_the_current_profile(profiles: Profiles, environment: dict[str, str]) -> None:
    profiles.save(profile("home", "https://home:4781"), authority=b"", bundle=b"")
    profiles.save(profile("lab"), authority=b"", bundle=b"")
    keys = {"AWS_ENDPOINT_URL": "http://other", "AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s"}

    def url(**variables: str) -> str:
        access = access_from_environment(environment | variables)
        return access.url if access else ""

    assert url() == "https://10.0.0.5:4781"
    assert url(**keys) == "http://other"
    assert url(TRAINYARD_PROFILE="home", **keys) == "https://home:4781"
    assert url(TRAINYARD_PROFILE="local") == ""
    assert url(TRAINYARD_HOME="/data/yard") == ""
    with pytest.raises(NotFound, match="nope"):
        url(TRAINYARD_PROFILE="nope")


def test_aws_clients_get_the_bundle_of_a_profile(profiles: Profiles, environment: dict[str, str]) -> None:
    profiles.save(profile(), authority=AUTHORITY, bundle=BUNDLE)
    target = profile_target(environment)
    assert target is not None
    variables = client_environment(target, current={}).variables
    assert variables["AWS_ENDPOINT_URL"] == "https://10.0.0.5:4781"
    assert Path(variables["AWS_CA_BUNDLE"]).read_bytes() == BUNDLE
    assert "AWS_ALLOW_HTTP" not in variables


def test_a_yard_with_a_public_certificate_needs_no_bundle(profiles: Profiles, environment: dict[str, str]) -> None:
    profiles.save(profile(), authority=AUTHORITY, bundle=BUNDLE)
    profiles.save(profile(), authority=b"", bundle=b"")
    target = profile_target(environment)
    assert target is not None
    assert target.ca_bundle is None
    assert "AWS_CA_BUNDLE" not in client_environment(target, current={}).variables
