import sys
from collections.abc import Iterator

import click
import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.cli import main
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.foundation.errors import Corrupt, LimitExceeded, NotFound, NotPermitted, TrainyardError


def test_alone_it_shows_its_help(trainyard: Trainyard) -> None:
    alone, asked = trainyard(), trainyard("-h")

    assert alone.code == asked.code == 0
    assert alone.out == asked.out
    assert alone.out.startswith("Examples:")
    assert alone.err == ""


def test_its_version_is_that_of_the_package(trainyard: Trainyard) -> None:
    import trainyard as package

    assert trainyard("--version").out == f"trainyard, version {package.__version__}\n"


# Groups have no examples of their own; their commands have them.
GROUPS = ("user", "quota", "images", "models")


def test_every_command_has_help_with_a_summary_and_examples(trainyard: Trainyard) -> None:
    summaries = {words[0]: words[1:] for line in trainyard("-h").out.splitlines() if (words := line.split())}
    pages = {name: trainyard(name, "-h") for name in main.COMMANDS}

    assert [name for name, page in pages.items() if page.code != 0] == []
    assert [name for name, page in pages.items() if f"Usage: trainyard {name}" not in page.out] == []
    assert [name for name in pages if len(summaries[name]) < 2] == []
    without_examples = {name for name, page in pages.items() if not page.out.startswith("Examples:\n  ")}
    assert without_examples <= set(GROUPS)


# They print a script, draw until the user quits, or run another program.
WITHOUT_JSON = {"completion", "tune watch", "tensorboard"}


def test_every_command_can_print_json() -> None:
    def leaves(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
        with click.Context(group) as ctx:
            for name in group.list_commands(ctx):
                command = group.get_command(ctx, name)
                assert command is not None
                if isinstance(command, click.Group):
                    yield from leaves(command, f"{path}{name} ")
                else:
                    yield f"{path}{name}", command

    commands = dict(leaves(main.trainyard))
    without = {name for name, each in commands.items() if not any("--json" in option.opts for option in each.params)}
    assert without == WITHOUT_JSON


def test_the_summaries_of_a_group_are_whole_sentences(trainyard: Trainyard) -> None:
    for group in ("user", "images", "models", "yards", "tune", "tensors"):
        listed = trainyard(group, "-h").out.partition("Commands:")[2]
        assert listed
        assert "..." not in listed


def test_an_unknown_command_is_a_usage_error_that_says_what_to_type(trainyard: Trainyard) -> None:
    result = trainyard("upp")

    assert result.code == 2
    assert "upp" in result.err
    assert "next: trainyard -h" in result.err
    assert result.out == ""


@pytest.mark.parametrize(("typed", "meant"), [("upp", "up"), ("list", "ls"), ("desribe", "describe"), ("xyz", "")])
def test_an_unknown_command_has_a_guess_at_what_was_meant(trainyard: Trainyard, typed: str, meant: str) -> None:
    guess = f" Did you mean '{meant}'?" if meant else ""
    assert f"No such command '{typed}'.{guess}\n" in trainyard(typed).err


def test_synonyms_are_not_commands_and_lead_to_commands() -> None:
    assert not main.SYNONYMS.keys() & main.COMMANDS.keys()
    assert set(main.SYNONYMS.values()) <= main.COMMANDS.keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls", "-n", "x"), "'x' is not a whole number."),
        (("run", "train.py", "-v", "x"), "'x' is not a whole number."),
        (("top", "--interval", "x"), "'x' is not a number."),
        (("completion",), "Choose from: bash, zsh, fish"),
    ],
)
def test_a_usage_error_is_one_line_in_plain_words(trainyard: Trainyard, arguments: tuple[str, ...], said: str) -> None:
    result = trainyard(*arguments)
    assert result.code == 2
    assert said in result.err.splitlines()[0]


def test_an_unknown_option_points_to_the_help_of_its_command(trainyard: Trainyard) -> None:
    result = trainyard("env", "--nope")

    assert result.code == 2
    assert "next: trainyard env -h" in result.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Failure("x"), 1),
        (Failure("x", code=ExitCode.TIME_LIMIT), 124),
        (NotFound("user", "anna"), 4),
        (NotPermitted("no"), 5),
        (LimitExceeded("full"), 6),
        (Corrupt("torn"), 1),
    ],
)
def test_errors_have_the_exit_codes_that_scripts_rely_on(
    trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch, error: TrainyardError, code: int
) -> None:
    fail_with(error, monkeypatch)

    result = trainyard("status")

    assert result.code == code
    assert result.err.startswith(f"error: {error.message}\n")
    assert "Traceback" not in result.err


def test_a_failure_says_what_why_and_what_next(trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(Failure("It broke.", why="It was old.", next_step="trainyard doctor"), monkeypatch)

    assert trainyard("status").err == "error: It broke.\n  why: It was old.\n next: trainyard doctor\n"


def test_debug_shows_the_traceback(trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(Corrupt("torn"), monkeypatch)

    result = trainyard("--debug", "status")

    assert "Traceback" in result.err
    assert "error: torn" in result.err


def test_a_fault_of_ours_names_itself_and_how_to_see_more(
    trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(ZeroDivisionError("division by zero"), monkeypatch)
    monkeypatch.setattr(sys, "argv", ["trainyard", "status"])

    result = trainyard("status")

    assert result.code == 1
    assert "error: ZeroDivisionError: division by zero" in result.err
    assert "next: trainyard --debug status" in result.err


def test_an_interrupt_ends_with_130(trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)

    assert trainyard("status").code == 130


@pytest.mark.parametrize(
    ("options", "variables", "colored"),
    [
        ([], {}, False),
        (["--color", "always"], {}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_color_is_for_terminals_unless_set_otherwise(
    trainyard: Trainyard,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    variables: dict[str, str],
    colored: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    fail_with(Corrupt("torn"), monkeypatch)

    assert ("\x1b[" in trainyard(*options, "status").err) == colored


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(trainyard: Trainyard, shell: str) -> None:
    result = trainyard("completion", shell)

    assert result.code == 0
    assert "_TRAINYARD_COMPLETE" in result.out


def test_starting_a_light_command_imports_nothing_heavy(yard: object) -> None:
    import subprocess

    program = (
        "import os, sys; from trainyard.cli.main import run; run(['env'], os.environ)\n"
        "heavy = {'botocore', 'sqlalchemy', 'cryptography', 'asyncio', 'uvicorn', 'obstore', 'awscrt'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[-1] == "[]"


def test_the_list_of_commands_imports_none_of_them() -> None:
    import subprocess

    program = (
        "import os, sys; from trainyard.cli.main import COMMANDS, run; run(['--help'], os.environ)\n"
        "print(sorted({entry.module for entry in COMMANDS.values() if f'trainyard.cli.{entry.module}' in sys.modules}))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[-1] == "[]"


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `trainyard status` raise an error. No real command can fail in each of these ways."""

    @click.command()
    def status() -> None:
        raise error

    monkeypatch.setattr("trainyard.cli.yard.status.status", status)
