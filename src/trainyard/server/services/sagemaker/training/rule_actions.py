"""The actions of a rule, parsed from the parameter `action_json` of its configuration.

The format is that of AWS: a JSON list of objects with a `name`, whose quotes the SDK escapes once more.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.gateways import Gateways, is_webhook_allowed

MAX_ACTIONS = 10

_PREFIX = re.compile(r"[A-Za-z0-9\-]+")
_ADDRESS = re.compile(r"[^@\s<>\",;]{1,64}@[^@\s<>\",;]{1,255}")
_PHONE = re.compile(r"\+\d{1,15}")
_MEMBERS = ("name", "training_job_prefix", "endpoint")

Action = Mapping[str, str]


def actions_of(text: str, gateways: Gateways, *, member: str, has_checkpoints: bool) -> tuple[Action, ...]:
    """Return the actions of a rule; InvalidRequest if one is unknown, incomplete, or has no gateway here."""
    if not text.strip():
        return ()
    given = _parse_json(text, member)
    if len(given) > MAX_ACTIONS:
        raise InvalidRequest(f"{member} has {len(given)} actions; a rule can have at most {MAX_ACTIONS}.")
    actions = tuple(_action(each, member) for each in given)
    for action in actions:
        _CHECKS[action["name"]](action, gateways, f"{member} {action['name']}")
        if action["name"] == "checkpointthenstop" and not has_checkpoints:
            raise InvalidRequest(
                f"{member} has checkpointthenstop, but the job saves no checkpoints; give it a CheckpointConfig."
            )
    return actions


def _parse_json(text: str, member: str) -> Sequence[Any]:
    for attempt in (text, _unescape(text)):
        try:
            value = json.loads(attempt)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, list) else [value]
    raise InvalidRequest(
        f'{member} is {text!r}, which is not a JSON list of actions such as [{{"name": "stoptraining"}}].'
    )


def _unescape(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def _action(given: Any, member: str) -> Action:
    known = ", ".join(_CHECKS)
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidRequest(
            f"{member} has {given!r}; an action must be an object of strings whose name is one of {known}."
        )
    name = given.get("name", "").lower()
    if name not in _CHECKS:
        raise InvalidRequest(f'{member} has the unknown action "{given.get("name", "")}"; use one of {known}.')
    unknown = sorted(set(given) - set(_MEMBERS))
    if unknown:
        raise InvalidRequest(
            f'{member} {name} has the unknown member "{unknown[0]}"; an action can have {", ".join(_MEMBERS)}.'
        )
    return {**given, "name": name}


def _check_stop(action: Action, _gateways: Gateways, what: str) -> None:
    prefix = action.get("training_job_prefix", "")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise InvalidRequest(
            f'{what} has the training_job_prefix "{prefix}"; it can have only letters, digits and hyphens.'
        )


def _check_email(action: Action, gateways: Gateways, what: str) -> None:
    address = action.get("endpoint", "")
    if not _ADDRESS.fullmatch(address):
        raise InvalidRequest(f'{what} has the endpoint "{address}"; it must be an address such as you@example.com.')
    _require_gateway(bool(gateways.smtp_url), what, setting="smtp_url")


def _check_sms(action: Action, gateways: Gateways, what: str) -> None:
    number = action.get("endpoint", "")
    if not _PHONE.fullmatch(number):
        raise InvalidRequest(f'{what} has the endpoint "{number}"; it must be a number such as +4915112345678.')
    _require_gateway(bool(gateways.sms_url), what, setting="sms_url")


def _check_webhook(action: Action, gateways: Gateways, what: str) -> None:
    url = action.get("endpoint", "")
    _require_gateway(bool(gateways.webhook_hosts), what, setting="webhook_hosts")
    try:
        allowed = is_webhook_allowed(gateways, url)
    except ValueError:
        # The port is not a number.
        allowed = False
    if not allowed:
        raise InvalidRequest(
            f'{what} has the endpoint "{url}"; webhooks of this yard can go by http or https to '
            f"{', '.join(gateways.webhook_hosts)}. An administrator adds hosts to the setting webhook_hosts."
        )


def _check_nothing(_action: Action, _gateways: Gateways, _what: str) -> None:
    """Accept the action: it needs no endpoint."""


def _check_command(action: Action, gateways: Gateways, what: str) -> None:
    name = action.get("endpoint", "")
    _require_gateway(bool(gateways.commands), what, setting="action_commands")
    if name not in gateways.commands:
        raise InvalidRequest(
            f'{what} has the endpoint "{name}"; the commands of this yard are {", ".join(sorted(gateways.commands))}. '
            "An administrator adds others to the setting action_commands."
        )


def _require_gateway(has_gateway: bool, what: str, *, setting: str) -> None:
    if not has_gateway:
        raise InvalidRequest(
            f"{what} is not available: this yard has no gateway for it. An administrator can add one with the setting "
            f"{setting} (TRAINYARD_SERVER_{setting.upper()}), see docs/debugger.md."
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
