from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.test_fault_log import entry, write
from trainyard.foundation.settings import setting_values
from trainyard.server.services.contract import ServerFacts
from trainyard.server.settings import PREFIX, ServerSettings
from trainyard.wire.fault import Fault


def with_facts(user: As, facts: ServerFacts) -> As:
    return replace(user, yard=replace(user.yard, own=facts))


def test_administrators_see_the_faults_of_the_server(accounts: Accounts, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    write(log, [entry(1, "warning", job="a"), entry(2, request="R-7")])
    admin = with_facts(accounts.admin, ServerFacts(log))

    faults = admin("trainyard", "ListFaults")["Faults"]
    assert [(each["Level"], each["Fields"]) for each in faults] == [
        ("error", {"request": "R-7"}),
        ("warning", {"job": "a"}),
    ]
    assert len(admin("trainyard", "ListFaults", Level="error", Text="r-7", MaxResults=1)["Faults"]) == 1
    assert admin("trainyard", "ListFaults", MaxResults=1)["NextToken"]


def test_a_server_that_logs_elsewhere_lists_no_faults(accounts: Accounts) -> None:
    answer = accounts.admin("trainyard", "ListFaults")
    assert (answer["Faults"], "LogFile" in answer) == ([], False)


def test_settings_are_listed_with_their_origins_and_without_secrets(accounts: Accounts, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('slots = 3\nwebhook_secret = "xyzzy"\nrecords = "postgresql://me:xyzzy@host/db"\n')
    given = setting_values(
        ServerSettings,
        file=file,
        environment={f"{PREFIX}RAY_TOKEN": "xyzzy", f"{PREFIX}REGION": "eu-west-3"},
        prefix=PREFIX,
        command_line={"port": 0},
    )
    answer = with_facts(accounts.admin, ServerFacts(None, file, given))("trainyard", "ListSettings")
    found = {each["Name"]: (each["Value"], each["Origin"]) for each in answer["Settings"]}
    assert found["slots"] == ("3", "file")
    assert found["region"] == ("eu-west-3", "environment")
    assert found["port"] == ("0", "command line")
    assert found["warm"] == ("true", "default")
    assert found["ray_token"] == (None, "environment")
    assert "xyzzy" not in str(answer)


@pytest.mark.parametrize("operation", ["ListFaults", "ListSettings"])
def test_others_are_refused(accounts: Accounts, operation: str) -> None:
    with pytest.raises(Fault, match="administrator") as refused:
        accounts.anna("trainyard", operation)
    assert refused.value.status == 403
