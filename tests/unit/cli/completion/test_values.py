import dataclasses
import os
from pathlib import Path

import click

from trainyard.cli.completion.values import RULES, SETTINGS, complete_jobs
from trainyard.cli.main import trainyard
from trainyard.foundation.home import Home
from trainyard.insight.rules.catalog import RULES as BUILT_IN
from trainyard.server.settings import ServerSettings


def completed(*words: str) -> list[str]:
    """Return what a shell would offer for the last word."""
    from click.shell_completion import ShellComplete

    *given, incomplete = words
    completion = ShellComplete(trainyard, {"obj": os.environ}, "trainyard", "_TRAINYARD_COMPLETE")
    return [item.value for item in completion.get_completions(list(given), incomplete)]


def test_the_rules_are_those_that_are_built_in() -> None:
    assert sorted(RULES) == sorted(BUILT_IN)
    assert completed("rules", "replay", "job", "--rule", "Van") == ["VanishingGradient"]


def test_settings_are_those_of_a_yard() -> None:
    assert sorted(SETTINGS) == sorted(field.name for field in dataclasses.fields(ServerSettings))
    assert completed("config", "set", "job-f") == completed("config", "get", "job_f") == ["job_files_kept"]


def test_instance_types_are_those_of_the_catalog_with_the_users_own(user_home: Path) -> None:
    home = user_home / ".trainyard"
    home.mkdir()
    (home / "catalog.toml").write_text('["ml.my-box"]\ncpus = 2\nmemory_gib = 4\n')
    assert completed("run", "train.py", "--it", "ml.my") == ["ml.my-box"]
    assert "ml.m5.large" in completed("run", "--instance-type", "ml.m5.l")
    assert completed("quota", "set", "anna", "ml.my") == ["ml.my-box"]


def test_images_are_those_that_are_mapped(user_home: Path) -> None:
    home = user_home / ".trainyard"
    home.mkdir()
    (home / "images.toml").write_text('[images]\n"mine:1" = "/usr/bin/python3"\n')
    assert completed("run", "--image-uri", "mi") == ["mine:1"]
    assert completed("images", "rm", "") == ["mine:1"]


def test_profiles_are_completed_with_the_yard_on_this_machine(user_home: Path) -> None:
    assert completed("yards", "use", "") == ["local"]
    assert completed("ls", "--profile", "lo") == ["local"]


def test_launchers_and_fields_of_json_are_completed(user_home: Path) -> None:
    assert completed("run", "--distribution", "torch") == ["torch_distributed"]
    assert completed("stop", "--json", "trainingjobn") == ["TrainingJobName"]
    assert completed("stop", "--json", "TrainingJobName,") == ["TrainingJobName,TrainingJobStatus"]


def test_statuses_are_spelled_as_in_the_api(user_home: Path) -> None:
    assert completed("ls", "--status", "in") == ["InProgress"]


def test_commands_and_options_are_completed_without_importing_every_command(user_home: Path) -> None:
    assert {"stop", "status", "spot"} <= set(completed("s"))
    assert completed("stop", "--ol") == ["--older-than"]
    assert completed("run", "train.py", "--", "--ep") == []


def test_without_a_yard_no_job_is_offered_and_none_is_started(user_home: Path) -> None:
    assert completed("logs", "mnist") == []
    assert not (user_home / ".trainyard").exists()


def test_a_yard_that_does_not_answer_is_no_error(yard: Home) -> None:
    with click.Context(click.Command("logs")) as context:
        assert complete_jobs(context, click.Argument(["job"]), "@") == ["@last"]
