import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt
from trainyard.link.contract import Command, CommandKind
from trainyard.link.mailbox import Mailbox


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mailbox"


def test_commands_are_read_in_the_order_they_were_put(folder: Path) -> None:
    mailbox = Mailbox(folder)
    put = [mailbox.put(CommandKind.STOP, {"reason": "user"}), mailbox.put(CommandKind.KILL)]

    assert mailbox.read(0) == put
    assert put == [Command(1, CommandKind.STOP, {"reason": "user"}), Command(2, CommandKind.KILL, {})]


def test_only_what_came_after_a_number_is_read(folder: Path) -> None:
    mailbox = Mailbox(folder)
    first = mailbox.put(CommandKind.STOP)
    second = mailbox.put(CommandKind.KILL)

    assert mailbox.read(first.number) == [second]
    assert mailbox.read(second.number) == []


def test_a_number_that_was_given_is_never_given_again(folder: Path) -> None:
    mailbox = Mailbox(folder)
    put = [mailbox.put(CommandKind.STOP) for _ in range(3)]
    assert [command.number for command in put] == [1, 2, 3]
    (folder / "00000001.json").unlink()

    assert mailbox.put(CommandKind.KILL).number == 4
    assert [command.number for command in mailbox.read(1)] == [2, 3, 4]


def test_the_mailbox_is_for_the_owner_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        Mailbox(folder).put(CommandKind.STOP)
    finally:
        os.umask(before)

    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "00000001.json").stat().st_mode & 0o777 == 0o600


def test_a_mailbox_that_nobody_wrote_to_is_empty(folder: Path) -> None:
    assert Mailbox(folder).read(0) == []


def test_a_command_for_an_instance_whose_folder_is_gone_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Mailbox(tmp_path / "gone" / "mailbox").put(CommandKind.STOP)

    assert list(tmp_path.iterdir()) == []


def test_a_restarted_yard_continues_counting(folder: Path) -> None:
    Mailbox(folder).put(CommandKind.STOP)

    assert Mailbox(folder).put(CommandKind.KILL).number == 2


def test_commands_put_at_once_get_numbers_of_their_own(folder: Path) -> None:
    mailboxes = [Mailbox(folder), Mailbox(folder)]

    with ThreadPoolExecutor(8) as threads:
        put = list(threads.map(lambda number: mailboxes[number % 2].put(CommandKind.STOP, {"of": number}), range(40)))

    assert sorted(command.number for command in put) == list(range(1, 41))
    assert mailboxes[0].read(0) == sorted(put, key=lambda command: command.number)


class Overtaken(Mailbox):
    """A mailbox into which another yard puts a command each time after this one has looked for the next number."""

    def __init__(self, folder: Path, *, times: int) -> None:
        super().__init__(folder)
        self._other, self._times = Mailbox(folder), times

    def _numbers(self) -> list[int]:
        numbers = super()._numbers()
        if self._times:
            self._times -= 1
            self._other.put(CommandKind.KILL)
            self._other.put(CommandKind.KILL)
        return numbers


def test_a_number_that_another_yard_has_just_used_is_skipped(folder: Path) -> None:
    assert Overtaken(folder, times=1).put(CommandKind.STOP) == Command(3, CommandKind.STOP, {})
    assert [command.kind for command in Mailbox(folder).read(0)] == [
        CommandKind.KILL,
        CommandKind.KILL,
        CommandKind.STOP,
    ]


def test_a_command_that_several_copy_at_once_is_there_once(folder: Path) -> None:
    commands = [Command(number, CommandKind.STOP, {"of": number}) for number in range(1, 41)]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda command: Mailbox(folder).copy(command), [each for each in commands for _ in range(8)]))

    assert Mailbox(folder).read(0) == commands


def test_what_a_crash_left_of_a_command_is_not_read(folder: Path) -> None:
    mailbox = Mailbox(folder)
    mailbox.put(CommandKind.STOP)
    for name in (".new-abc", "00000002.jsonx", "x00000002.json"):
        (folder / name).write_text('{"kind": "ki')

    assert [command.kind for command in mailbox.read(0)] == [CommandKind.STOP]
    assert mailbox.put(CommandKind.KILL).number == 2


def test_nothing_but_commands_stays_in_the_folder(folder: Path) -> None:
    Mailbox(folder).put(CommandKind.STOP)

    assert [path.name for path in folder.iterdir()] == ["00000001.json"]


@pytest.mark.parametrize("text", ["", "{}", '{"kind": "dance", "payload": {}}', "[]"])
def test_a_file_that_is_no_command_is_an_error(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "00000001.json").write_text(text)

    with pytest.raises(Corrupt, match=r"00000001\.json"):
        Mailbox(folder).read(0)


def test_a_copied_command_keeps_its_number_and_is_there_once(folder: Path) -> None:
    mailbox = Mailbox(folder)
    stop, kill = Command(1, CommandKind.STOP, {"reason": "user"}), Command(2, CommandKind.KILL, {})

    for command in (kill, stop, kill, stop):
        mailbox.copy(command)

    assert mailbox.read(0) == [stop, kill]
    assert mailbox.put(CommandKind.KILL).number == 3
    mailbox.copy(Command(9, CommandKind.STOP, {}))
    assert mailbox.put(CommandKind.KILL).number == 10
