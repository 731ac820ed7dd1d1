"""The contract of a page of the dashboard: the routes, tabs and navigation entries that its folder declares.

Each folder in `pages/` has a module `routes` with `PAGE`. A handler gets a `Visit`, which calls the API as the user who
is signed in, and returns a response.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from trainyard.server.dashboard.visit import Visit

__all__ = ["Handler", "JobTab", "NavigationEntry", "Page", "PageRoute", "Visit", "get", "post"]

Handler = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """One address of a page, below `/-`. A POST changes something, so it needs the CSRF token of the session.

    Anyone may open a public route. Pages of other origins on the loopback may frame an embeddable one. A document is
    not a page of the dashboard but HTML of its own, which runs in a sandbox and reaches nothing of the yard.
    """

    method: str
    path: str
    handler: Handler
    is_public: bool = False
    is_embeddable: bool = False
    is_document: bool = False


@dataclass(frozen=True, slots=True)
class JobTab:
    """A tab on the pages of a kind of job. `path` follows the address of the job; the first tab has an empty one."""

    path: str
    title: str
    order: int
    kind: str = "training"


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A link in the head of every page."""

    title: str
    path: str
    order: int
    is_for_admins: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What a page folder adds to the dashboard. `name` is the name of the folder."""

    name: str
    routes: tuple[PageRoute, ...]
    tabs: tuple[JobTab, ...] = ()
    navigation: tuple[NavigationEntry, ...] = ()


def get(
    path: str, handler: Handler, *, is_public: bool = False, is_embeddable: bool = False, is_document: bool = False
) -> PageRoute:
    return PageRoute("GET", path, handler, is_public, is_embeddable, is_document)


def post(path: str, handler: Handler, *, is_public: bool = False) -> PageRoute:
    return PageRoute("POST", path, handler, is_public)
