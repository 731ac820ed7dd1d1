"""What shall be done when a rule finds something, read from the parameter `action_json` of its configuration.

Its form is that of AWS: a JSON list of objects with a `name`, whose quotes the SDK escapes once more.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.gateways import Gateways, is_allowed

MAX_ACTIONS = 10

_PREFIX = re.compile(r"[A-Za-z0-9\-]+")
_ADDRESS = re.compile(r"[^@\s<>\",;]{1,64}@[^@\s<>\",;]{1,255}")
_PHONE = re.compile(r"\+\d{1,15}")
_MEMBERS = ("name", "training_job_prefix", "endpoint")

Action = Mapping[str, str]


def actions_of(text: str, gateways: Gateways, *, member: str, has_checkpoints: bool) -> tuple[Action, ...]:
    """The actions of a rule; InvalidRequest when one is unknown, is told too little, or has no gateway here."""
    if not text.strip():
        return ()
    found = _parsed(text, member)
    if len(found) > MAX_ACTIONS:
        raise InvalidRequest(f"{member} has {len(found)} actions; a rule has at most {MAX_ACTIONS}.")
    actions = tuple(_action(each, member) for each in found)
    for action in actions:
        _CHECKS[action["name"]](action, gateways, f"{member} {action['name']}")
        if action["name"] == "checkpointthenstop" and not has_checkpoints:
            raise InvalidRequest(
                f"{member} has checkpointthenstop, but the job keeps no checkpoints; give it a CheckpointConfig."
            )
    return actions


def _parsed(text: str, member: str) -> Sequence[Any]:
    for attempt in (text, _unescaped(text)):
        try:
            value = json.loads(attempt)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, list) else [value]
    raise InvalidRequest(
        f'{member} is {text!r}, which is no JSON list of actions; write it like [{{"name": "stoptraining"}}].'
    )


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def _action(given: Any, member: str) -> Action:
    known = ", ".join(_CHECKS)
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidRequest(f"{member} has {given!r}; an action is an object of texts with a name: {known}.")
    name = given.get("name", "").lower()
    if name not in _CHECKS:
        raise InvalidRequest(f'{member} has the action "{given.get("name", "")}"; there are {known}.')
    unknown = sorted(set(given) - set(_MEMBERS))
    if unknown:
        raise InvalidRequest(f'{member} {name} has "{unknown[0]}"; an action can have {", ".join(_MEMBERS)}.')
    return {**given, "name": name}


def _check_stop(action: Action, _gateways: Gateways, what: str) -> None:
    prefix = action.get("training_job_prefix", "")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise InvalidRequest(f'{what} has the training_job_prefix "{prefix}"; it can have letters, digits and hyphens.')


def _check_email(action: Action, gateways: Gateways, what: str) -> None:
    address = action.get("endpoint", "")
    if not _ADDRESS.fullmatch(address):
        raise InvalidRequest(f'{what} has the endpoint "{address}"; it needs an address such as you@example.com.')
    _require_set_up(bool(gateways.smtp_url), what, setting="smtp_url")


def _check_sms(action: Action, gateways: Gateways, what: str) -> None:
    number = action.get("endpoint", "")
    if not _PHONE.fullmatch(number):
        raise InvalidRequest(f'{what} has the endpoint "{number}"; it needs a number like +4915112345678.')
    _require_set_up(bool(gateways.sms_url), what, setting="sms_url")


def _check_webhook(action: Action, gateways: Gateways, what: str) -> None:
    url = action.get("endpoint", "")
    _require_set_up(bool(gateways.webhook_hosts), what, setting="webhook_hosts")
    try:
        allowed = is_allowed(gateways, url)
    except ValueError:  # of a port that is none
        allowed = False
    if not allowed:
        raise InvalidRequest(
            f'{what} has the endpoint "{url}"; webhooks of this yard may go by http or https to '
            f"{', '.join(gateways.webhook_hosts)}. An administrator adds hosts to the setting webhook_hosts."
        )


def _check_nothing(_action: Action, _gateways: Gateways, _what: str) -> None:
    """It needs nothing."""


def _check_command(action: Action, gateways: Gateways, what: str) -> None:
    name = action.get("endpoint", "")
    _require_set_up(bool(gateways.commands), what, setting="action_commands")
    if name not in gateways.commands:
        raise InvalidRequest(
            f'{what} has the endpoint "{name}"; the commands of this yard are {", ".join(sorted(gateways.commands))}. '
            "An administrator adds others to the setting action_commands."
        )


def _require_set_up(is_set_up: bool, what: str, *, setting: str) -> None:
    if not is_set_up:
        raise InvalidRequest(
            f"{what} cannot be carried out: this yard has no gateway for it. An administrator sets it up with the "
            f"setting {setting} (TRAINYARD_SERVER_{setting.upper()}), see docs/debugger.md."
        )


_CHECKS: Mapping[str, Callable[[Action, Gateways, str], None]] = {
    "stoptraining": _check_stop,
    "checkpointthenstop": _check_nothing,
    "email": _check_email,
    "sms": _check_sms,
    "webhook": _check_webhook,
    "slack": _check_webhook,
    "command": _check_command,
}
