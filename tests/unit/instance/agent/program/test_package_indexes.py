import configparser
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import SPEC, changed
from trainyard.instance.agent.program import package_indexes
from trainyard.instance.agent.program.package_indexes import PackageIndexes
from trainyard.instance.sandbox.contract import SETTINGS

PIP, UV = f"{SETTINGS}/pip/pip.conf", f"{SETTINGS}/uv/uv.toml"


@pytest.fixture(autouse=True)
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that stands for /etc."""
    monkeypatch.setattr(package_indexes, "_SYSTEM_PIP", tmp_path / "pip.conf")
    monkeypatch.setattr(package_indexes, "_SYSTEM_UV", tmp_path / "uv.toml")
    return tmp_path


def settings(variables: Mapping[str, str], **members: Any) -> Mapping[str, str]:
    with PackageIndexes(changed(SPEC, **members), variables).settings() as files:
        return files


def pip_options(text: str) -> Mapping[str, str]:
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    return {name: value for section in parser.sections() for name, value in parser.items(section)}


def test_the_indexes_of_the_yard_become_settings_of_the_system() -> None:
    files = settings(
        {
            "PIP_INDEX_URL": "https://one.example/simple",
            "PIP_EXTRA_INDEX_URL": "https://two.example/simple https://three.example/simple",
            "PIP_FIND_LINKS": "/opt/wheels",
            "PIP_TARGET": "/of/the/yard",
        },
    )
    assert pip_options(files[PIP]) == {
        "index-url": "https://one.example/simple",
        "extra-index-url": "https://two.example/simple\nhttps://three.example/simple",
        "find-links": "/opt/wheels",
    }
    assert tomllib.loads(files[UV]) == {
        "index-strategy": "unsafe-best-match",
        "index-url": "https://one.example/simple",
        "extra-index-url": ["https://two.example/simple", "https://three.example/simple"],
        "find-links": ["/opt/wheels"],
    }


def test_passwords_stay_with_the_agent(system: Path) -> None:
    (system / "pip.conf").write_text(
        "[global]\nindex-url = https://a:b@one.example/simple\nclient_cert = /etc/key.pem\nretries = 7\n"
    )
    files = settings({"PIP_EXTRA_INDEX_URL": "https://a:b@two.example/simple"})
    options = pip_options(files[str(system / "pip.conf")])
    assert options["index-url"].startswith("http://127.0.0.1:")
    assert options["extra-index-url"].startswith("http://127.0.0.1:")
    assert (options["client_cert"], options["retries"]) == ("", "7")
    assert "a:b" not in "".join(files.values())


def test_with_a_store_for_downloads_all_indexes_are_reached_through_the_agent(tmp_path: Path) -> None:
    files = settings({}, environments=str(tmp_path / "environments"))
    assert pip_options(files[PIP])["index-url"].startswith("http://127.0.0.1:")
    assert tomllib.loads(files[UV])["index-url"] == pip_options(files[PIP])["index-url"]


def test_the_own_settings_of_uv_are_used_for_it(system: Path) -> None:
    variables = {"UV_DEFAULT_INDEX": "https://uv.example/simple", "UV_INDEX": "corp=https://corp.example/simple"}
    told = tomllib.loads(settings(variables)[UV])
    assert told == {"index-url": "https://uv.example/simple", "extra-index-url": ["https://corp.example/simple"]}
    (system / "uv.toml").touch()
    assert UV not in settings(variables)


def test_a_yard_without_an_index_leaves_jobs_without_one(tmp_path: Path) -> None:
    files = settings({"PIP_NO_INDEX": "1"}, environments=str(tmp_path))
    assert pip_options(files[PIP]) == {"no-index": "1"}
    assert tomllib.loads(files[UV])["no-index"] is True


def test_an_isolated_job_is_told_nothing() -> None:
    assert settings({"PIP_INDEX_URL": "https://one.example/simple"}, is_isolated=True) == {}
