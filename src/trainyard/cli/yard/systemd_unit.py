"""The systemd unit of a yard, as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# The first line of units that this program may replace and remove.
MARK = "# Written by `trainyard service install`; `trainyard service uninstall` removes it."

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_UNIT = """\
{mark}
[Unit]
Description=Trainyard on {description}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart={command}
Environment={path}
Restart=on-failure
RestartSec=5
# Only the yard gets the signal: jobs continue while it restarts, and it finds them again.
KillMode=process
TimeoutStopSec=60
# The yard puts each job into a control group of its own.
Delegate=yes
TasksMax=infinity
LimitNOFILE=1048576

[Install]
WantedBy={target}
"""


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """A unit that runs a yard: for the whole machine, or for one user."""

    name: str
    home: Path
    python: Path
    is_system: bool

    @property
    def text(self) -> str:
        command = (str(self.python), "-m", "trainyard.cli", "up", "--home", str(self.home))
        return _UNIT.format(
            mark=MARK,
            description=_specifier_safe(str(self.home)),
            command=_words(command),
            path=_word(f"PATH={self.python.parent}:{_PATH}", is_command=False),
            target="multi-user.target" if self.is_system else "default.target",
        )


def _words(words: Sequence[str]) -> str:
    return " ".join(_word(word, is_command=True) for word in words)


def _word(word: str, *, is_command: bool) -> str:
    """Return a word in quotes, with what systemd would expand written twice."""
    escaped = _specifier_safe(word).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + (escaped.replace("$", "$$") if is_command else escaped) + '"'


def _specifier_safe(text: str) -> str:
    return text.replace("%", "%%")
