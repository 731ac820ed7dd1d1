"""The sections of the administration, and their common frame."""

from dataclasses import dataclass
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from trainyard.server.dashboard.contract import Handler, Visit


@dataclass(frozen=True, slots=True)
class AdminSection:
    """One of the tabs. `name` is the last part of its address."""

    name: str
    title: str

    @property
    def address(self) -> str:
        return f"/-/admin/{self.name}"


SECTIONS = (
    AdminSection("users", "Users"),
    AdminSection("quotas", "Quotas"),
    AdminSection("storage", "Storage"),
    AdminSection("engines", "Engines"),
    AdminSection("settings", "Settings"),
    AdminSection("faults", "Faults"),
)


def for_administrators(handler: Handler) -> Handler:
    """Return a handler that refuses everybody else. The API refuses them, too, but some of it shows them their own."""

    @wraps(handler)
    async def answer(visit: Visit) -> Response:
        if not visit.user.is_admin:
            message = "Only administrators see this page. Ask one of them if you need something changed."
            return visit.error(message, status=403, code="AccessDenied")
        return await handler(visit)

    return answer


def next_address(visit: Visit, token: str) -> str:
    """Return the address of the page of the list that begins after this one; "" if there is none."""
    return f"{visit.request.url.path}?{urlencode(dict(visit.query) | {'after': token})}" if token else ""


def render_section(visit: Visit, name: str, **values: Any) -> Response:
    section = next(each for each in SECTIONS if each.name == name)
    return visit.render(f"admin/{name}.html", section=section, sections=SECTIONS, **values)
