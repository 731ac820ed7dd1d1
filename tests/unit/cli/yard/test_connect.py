import fcntl
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import botocore.session
import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.cli.yard import connect
from trainyard.foundation.home import Home

OWN_CONFIG = (
    "# Zoë's, from a Windows machine\r\n[default]\nregion = eu-central-1\nrole_arn = arn:aws:iam::1:role/x\n\n"
    "[profile b]\r\na=1"
).encode()
OWN_CREDENTIALS = b"[default]\naws_access_key_id = AKIAREAL\naws_secret_access_key = reallysecret\n"


@pytest.fixture
def own_files(user_home: Path) -> Path:
    """A user who has worked with AWS before."""
    aws = user_home / ".aws"
    aws.mkdir(mode=0o755)
    (aws / "config").write_bytes(OWN_CONFIG)
    (aws / "config").chmod(0o640)
    (aws / "credentials").write_bytes(OWN_CREDENTIALS)
    (aws / "cli").mkdir()
    return user_home


def everything(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return every path of the user except for the yard's home, with its mode and content."""
    paths = [path for path in folder.rglob("*") if ".trainyard" not in path.parts]
    return {
        str(path.relative_to(folder)): (
            stat.S_IMODE(path.lstat().st_mode),
            path.read_bytes() if path.is_file() else None,
        )
        for path in paths
    }


def test_boto_finds_the_yard_without_any_variable(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    assert trainyard("connect", "-y").code == 0

    session = botocore.session.Session()
    credentials = session.get_credentials()
    assert (credentials.access_key, credentials.secret_key) == ("AKIAEXAMPLE", "it's/secret+")
    assert session.get_config_variable("region") == "eu-west-3"
    assert session.get_scoped_config()["endpoint_url"] == "http://127.0.0.1:4780"
    assert session.get_config_variable("ca_bundle") == str(yard.ca_bundle)
    assert session.full_config["profiles"]["b"] == {"a": "1"}


def test_the_sagemaker_sdk_would_ask_sts_at_the_yard(trainyard: Trainyard, yard: Home, user_home: Path) -> None:
    trainyard("connect", "-y")

    # What sagemaker.utils.sts_regional_endpoint does.
    loader = botocore.loaders.Loader([str(user_home / ".aws" / "models")])
    resolver = botocore.regions.EndpointResolver(loader.load_data("endpoints"))
    assert resolver.construct_endpoint("sts", "eu-west-3")["hostname"] == "127.0.0.1:4781"


def test_the_sagemaker_sdk_sends_no_usage_figures_and_knows_the_role(
    trainyard: Trainyard, yard: Home, user_home: Path
) -> None:
    trainyard("connect", "-y")

    text = (user_home / ".config" / "sagemaker" / "config.yaml").read_text()
    assert "TelemetryOptOut: true" in text
    assert "RoleArn: 'arn:aws:iam::123456789012:role/TrainyardRole'" in text


def test_files_are_written_where_the_variables_say(
    trainyard: Trainyard, yard: Home, user_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "~/elsewhere/aws.ini")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user_home / "xdg"))

    trainyard("connect", "-y")

    assert "endpoint_url" in (user_home / "elsewhere" / "aws.ini").read_text()
    assert (user_home / "xdg" / "sagemaker" / "config.yaml").exists()
    assert not (user_home / ".aws" / "config").exists()


def test_the_result_as_json_names_the_files(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    connected = json.loads(trainyard("connect", "-y", "--json").out)
    assert str(own_files / ".aws" / "config") in connected["Written"]
    assert connected["Overrides"] == []
    assert json.loads(trainyard("connect", "-y", "--json").out)["Written"] == []
    assert sorted(json.loads(trainyard("disconnect", "--json").out)["Restored"]) == sorted(connected["Written"])
    assert json.loads(trainyard("disconnect", "--json").out)["Restored"] == []


def test_disconnect_restores_every_byte_and_mode(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    before = everything(own_files)

    assert trainyard("connect", "-y").code == 0
    assert everything(own_files) != before
    assert trainyard("disconnect").code == 0

    assert everything(own_files) == before
    assert not yard.connection.exists()


def test_disconnect_removes_files_and_folders_that_were_not_there(
    trainyard: Trainyard, yard: Home, user_home: Path
) -> None:
    trainyard("connect", "-y")
    trainyard("disconnect")

    assert everything(user_home) == {}


def test_a_folder_that_got_other_files_meanwhile_stays(trainyard: Trainyard, yard: Home, user_home: Path) -> None:
    trainyard("connect", "-y")
    (user_home / ".aws" / "sso").mkdir()

    trainyard("disconnect")

    assert sorted(everything(user_home)) == [".aws", ".aws/sso"]


def test_a_second_connect_has_nothing_to_write_and_keeps_the_originals(
    trainyard: Trainyard, yard: Home, own_files: Path
) -> None:
    before = everything(own_files)
    trainyard("connect", "-y")

    again = trainyard("connect", "-y")

    assert "Already connected" in again.err
    trainyard("disconnect")
    assert everything(own_files) == before


def test_connecting_again_after_the_yard_moved_keeps_the_originals(
    trainyard: Trainyard, yard: Home, own_files: Path
) -> None:
    before = everything(own_files)
    trainyard("connect", "-y")
    runtime = yard.runtime()
    assert runtime
    yard.write_runtime(replace(runtime, http="http://127.0.0.1:5000", https="https://127.0.0.1:5001"))

    moved = trainyard("connect", "-y")

    assert "-endpoint_url = http://127.0.0.1:4780" in moved.err
    assert "+endpoint_url = http://127.0.0.1:5000" in moved.err
    assert "http://127.0.0.1:5000" in (own_files / ".aws" / "config").read_text(errors="replace")
    trainyard("disconnect")
    assert everything(own_files) == before


def test_a_file_that_is_a_link_stays_one(trainyard: Trainyard, yard: Home, user_home: Path) -> None:
    (user_home / "dotfiles").mkdir()
    (user_home / "dotfiles" / "aws").write_bytes(OWN_CONFIG)
    (user_home / ".aws").mkdir()
    (user_home / ".aws" / "config").symlink_to(user_home / "dotfiles" / "aws")

    trainyard("connect", "-y")
    assert (user_home / ".aws" / "config").is_symlink()
    assert b"endpoint_url" in (user_home / "dotfiles" / "aws").read_bytes()
    trainyard("disconnect")

    assert (user_home / ".aws" / "config").is_symlink()
    assert (user_home / "dotfiles" / "aws").read_bytes() == OWN_CONFIG


def test_a_byte_that_is_no_text_survives(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    config = own_files / ".aws" / "config"
    config.write_bytes(b"# \xff\n[default]\n")

    assert trainyard("connect", "-y").code == 0
    assert config.read_bytes().startswith(b"# \xff\n[default]\nregion")
    trainyard("disconnect")

    assert config.read_bytes() == b"# \xff\n[default]\n"


def test_the_diff_shows_what_changes_but_no_secret(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    shown = trainyard("connect", "-y").err

    assert "-region = eu-central-1" in shown
    assert "+region = eu-west-3" in shown
    assert "TelemetryOptOut" in shown
    assert "127.0.0.1:4781" in shown
    assert "aws_secret_access_key = ****" in shown
    assert "reallysecret" not in shown
    assert "it's/secret+" not in shown


def test_without_a_terminal_it_does_not_guess(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    before = everything(own_files)

    result = trainyard("connect")

    assert result.code == 1
    assert "next: trainyard connect -y" in result.err
    assert everything(own_files) == before
    assert not yard.connection.exists()


def test_disconnect_refuses_with_a_diff_when_someone_changed_a_file(
    trainyard: Trainyard, yard: Home, own_files: Path
) -> None:
    trainyard("connect", "-y")
    config = own_files / ".aws" / "config"
    config.write_bytes(config.read_bytes() + b"\n[profile new]\nregion = sa-east-1\n")
    changed = everything(own_files)

    result = trainyard("disconnect")

    assert result.code == 1
    assert "+[profile new]" in result.err
    assert "disconnect --force" in result.err
    assert everything(own_files) == changed


def test_connect_refuses_too_when_someone_changed_a_file(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    trainyard("connect", "-y")
    (own_files / ".aws" / "credentials").unlink()
    changed = everything(own_files)

    result = trainyard("connect", "-y")

    assert result.code == 1
    assert "-[default]" in result.err
    assert everything(own_files) == changed


def test_force_restores_and_keeps_a_copy_of_the_change(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    before = everything(own_files)
    trainyard("connect", "-y")
    (own_files / ".aws" / "config").write_bytes(b"[changed]\n")

    result = trainyard("disconnect", "--force")

    after = everything(own_files)
    assert result.code == 0
    assert after.pop(".aws/config.changed") == (0o600, b"[changed]\n")
    assert after == before


def test_a_connect_that_was_cut_short_can_be_undone(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    before = everything(own_files)
    trainyard("connect", "-y")
    # As if a crash had left only the second file written.
    (own_files / ".aws" / "config").write_bytes(OWN_CONFIG)
    (own_files / ".config" / "sagemaker" / "config.yaml").unlink()

    assert trainyard("disconnect").code == 0
    assert everything(own_files) == before


def test_a_file_that_cannot_be_written_leaves_all_as_they_were(
    trainyard: Trainyard, yard: Home, own_files: Path
) -> None:
    (own_files / ".config").write_bytes(b"a file where a folder must be")
    before = everything(own_files)

    result = trainyard("connect", "-y")

    assert result.code == 1
    assert "Nothing was changed" in result.err
    assert everything(own_files) == before


def test_variables_that_come_before_the_files_are_pointed_out(
    trainyard: Trainyard, yard: Home, own_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_CA_BUNDLE", "/etc/ssl/other.pem")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4780")

    remarks = [line for line in trainyard("connect", "-y").err.splitlines() if "is set in this shell" in line]

    assert [remark.split()[0] for remark in remarks] == ["AWS_CA_BUNDLE", "AWS_PROFILE"]


def test_disconnect_without_connect_has_nothing_to_do(trainyard: Trainyard, yard: Home, own_files: Path) -> None:
    result = trainyard("disconnect")

    assert result.code == 0
    assert "Not connected" in result.err


def test_a_damaged_manifest_is_said_with_where_the_originals_are(
    trainyard: Trainyard, yard: Home, own_files: Path
) -> None:
    trainyard("connect", "-y")
    (yard.connection / "manifest.json").write_text(json.dumps({"files": 1}))

    result = trainyard("disconnect")

    assert result.code == 1
    assert str(yard.connection / "originals") in result.err


def test_a_file_that_another_writes_while_one_is_asked_is_not_overwritten(
    trainyard: Trainyard, yard: Home, own_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates two `connect` commands to different yards at the same time."""
    config = own_files / ".aws" / "config"
    monkeypatch.setattr(connect, "_confirm", lambda _: config.write_bytes(b"[default]\nregion = of-another\n"))

    said = trainyard("connect", "-y")

    assert said.code != 0
    assert "has changed since the changes were shown" in said.err
    assert config.read_bytes() == b"[default]\nregion = of-another\n"
    assert (own_files / ".aws" / "credentials").read_bytes() == OWN_CREDENTIALS


def test_one_connect_of_a_user_writes_at_a_time(
    trainyard: Trainyard, yard: Home, own_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_held: list[bool] = []

    def look(*_: object) -> None:
        descriptor = os.open(own_files, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_held.append(True)
        finally:
            os.close(descriptor)

    monkeypatch.setattr(connect, "replace_files", look)
    assert trainyard("connect", "-y").code == 0
    assert is_held == [True]
