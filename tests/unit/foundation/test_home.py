import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound
from trainyard.foundation.home import FORMAT, Credentials, Home, HomeVersion, Runtime, process_start

CREDENTIALS = Credentials("123456789012", "admin", "TrainyardRole", "AKIDEXAMPLE", "s3cret/+=", "us-east-1")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def this_yard(home: Home) -> Runtime:
    return Runtime.of_this_process(
        http="http://127.0.0.1:4780", https="https://127.0.0.1:4781", version="1.2.3", home=home.root
    )


def test_an_absent_folder_has_no_version(home: Home) -> None:
    assert home.check() is None


def test_an_empty_folder_has_no_version(home: Home) -> None:
    home.root.mkdir()

    assert home.check() is None


def test_a_folder_with_traces_of_a_first_start_counts_as_empty(home: Home) -> None:
    home.root.mkdir()
    (home.root / "version.new").touch()
    home.server_log.touch()

    assert home.check() is None


def test_a_folder_of_something_else_is_refused(home: Home) -> None:
    home.root.mkdir()
    (home.root / "thesis.tex").touch()

    with pytest.raises(InvalidRequest, match=r"not empty and not a home folder of Trainyard.*--home"):
        home.check()


def test_a_file_is_refused_as_a_home(home: Home) -> None:
    home.root.touch()

    with pytest.raises(InvalidRequest, match="is not a folder"):
        home.check()


def test_the_version_is_read_back(home: Home) -> None:
    home.root.mkdir()
    home.write_version(HomeVersion(FORMAT, "0.1.0"))

    assert home.check() == HomeVersion(FORMAT, "0.1.0")


def test_a_home_of_a_newer_version_is_refused_with_the_version_that_made_it(home: Home) -> None:
    home.root.mkdir()
    home.write_version(HomeVersion(FORMAT + 1, "9.1.0"))

    with pytest.raises(InvalidRequest, match=r"made by Trainyard 9\.1\.0.*trainyard>=9\.1\.0"):
        home.check()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "one", "made_by": "0.1.0"}'])
def test_a_damaged_version_file_is_corrupt_and_says_what_to_do(home: Home, text: str) -> None:
    home.root.mkdir()
    home.version_file.write_text(text)

    with pytest.raises(Corrupt, match="trainyard restore"):
        home.check()


def test_no_runtime_file_means_no_yard(home: Home) -> None:
    assert home.runtime() is None


def test_the_runtime_of_a_living_process_is_read_back(home: Home) -> None:
    home.root.mkdir()
    runtime = this_yard(home)

    home.write_runtime(runtime)

    assert home.runtime() == runtime
    assert runtime.pid == os.getpid()
    assert home.runtime_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("bound", "reached"),
    [
        ("http://0.0.0.0:4780", "http://127.0.0.1:4780"),
        ("http://[::]:4780", "http://[::1]:4780"),
        ("http://192.0.2.7:4780", "http://192.0.2.7:4780"),
    ],
)
def test_a_yard_on_every_address_is_reached_by_the_loopback_one(tmp_path: Path, bound: str, reached: str) -> None:
    runtime = Runtime.of_this_process(http=bound, https=bound, version="1", home=tmp_path)

    assert (runtime.http, runtime.https) == (reached, reached)


def test_the_runtime_of_another_process_with_the_same_pid_is_stale(home: Home) -> None:
    home.root.mkdir()
    home.write_runtime(replace(this_yard(home), started="another-boot:1"))

    assert home.runtime() is None


def test_the_runtime_of_a_process_that_ended_is_stale(home: Home) -> None:
    home.root.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = process_start(child.pid)
        assert started
        home.write_runtime(replace(this_yard(home), pid=child.pid, started=started))
        alive = home.runtime()
    assert alive is not None
    assert home.runtime() is None


def test_a_torn_runtime_file_means_no_yard(home: Home) -> None:
    home.root.mkdir()
    home.runtime_file.write_text('{"pid": 1')

    assert home.runtime() is None


def test_removing_the_runtime_twice_is_no_error(home: Home) -> None:
    home.root.mkdir()
    home.write_runtime(this_yard(home))

    home.remove_runtime()
    home.remove_runtime()

    assert home.runtime() is None


def test_credentials_are_read_back_and_private(home: Home) -> None:
    home.root.mkdir()

    home.write_credentials(CREDENTIALS)

    assert home.credentials() == CREDENTIALS
    assert home.credentials_file.stat().st_mode & 0o777 == 0o600
    assert CREDENTIALS.secret_access_key not in repr(CREDENTIALS)


def test_a_home_that_never_started_has_no_credentials(home: Home) -> None:
    with pytest.raises(NotFound):
        home.credentials()


def test_credentials_that_lack_a_member_are_corrupt(home: Home) -> None:
    home.root.mkdir()
    home.credentials_file.write_text('{"account": "123456789012"}')

    with pytest.raises(Corrupt, match="lacks user, role"):
        home.credentials()
