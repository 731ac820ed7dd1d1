import base64
from datetime import timedelta

from tests.unit.server.services.accounts import NOON, Accounts


def test_a_token_is_what_docker_logs_in_with(accounts: Accounts) -> None:
    (data,) = accounts.anna("ecr", "GetAuthorizationToken")["authorizationData"]

    user, _, password = base64.b64decode(data["authorizationToken"]).decode().partition(":")
    assert user == "AWS"
    assert len(password) > 40
    assert data["proxyEndpoint"] == f"https://{accounts.anna.account}.dkr.ecr.eu-west-3.amazonaws.com"
    assert data["expiresAt"] == NOON + timedelta(hours=12)


def test_a_token_is_given_for_each_registry_that_is_named(accounts: Accounts) -> None:
    named = ["763104351884", "683313688378"]

    data = accounts.anna("ecr", "GetAuthorizationToken", registryIds=named)["authorizationData"]

    assert [each["proxyEndpoint"].split("//")[1][:12] for each in data] == named
    assert len({each["authorizationToken"] for each in data}) == 2
