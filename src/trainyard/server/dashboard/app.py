"""The dashboard's ASGI app, below `/-/`. No bucket has such a name.

Every request passes the same checks in the same order: the name of the host, the session, and the origin and token of a
request that changes something. A page's handler runs after them.
"""

import logging
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route

from trainyard.foundation.clock import Clock
from trainyard.server.dashboard.addresses import HOME_PAGE, SIGN_IN_PAGE
from trainyard.server.dashboard.api import ApiFault, YardApi
from trainyard.server.dashboard.contract import JobTab, NavigationEntry, PageRoute
from trainyard.server.dashboard.events import OpenStreams
from trainyard.server.dashboard.pages import PAGES
from trainyard.server.dashboard.protection import KnownHosts, is_same_origin, security_headers
from trainyard.server.dashboard.rendering import STATIC_TYPES, StaticFiles, make_environment
from trainyard.server.dashboard.sessions import find_session
from trainyard.server.dashboard.visit import BadRequest, Visit
from trainyard.server.http.body import BodyIntake
from trainyard.server.http.connections import EXTENSION
from trainyard.server.identity import Caller
from trainyard.server.services.contract import Yard
from trainyard.wire.fault import Fault
from trainyard.wire.models import Models

log = logging.getLogger(__name__)


class Dashboard:
    """The ASGI callable, with what its pages share."""

    def __init__(
        self, yard: Yard, models: Models, clock: Clock, bodies: BodyIntake, *, region: str, hosts: Iterable[str]
    ) -> None:
        self._yard, self._models, self._clock, self._region = yard, models, clock, region
        self._hosts = KnownHosts(hosts)
        self._files = StaticFiles()
        self.identities, self.records = yard.identities, yard.records
        self.bodies = bodies
        self.streams = OpenStreams()
        self.templates = make_environment(self._files)
        tabs = [tab for page in PAGES for tab in page.tabs]
        self._tabs = sorted(tabs, key=lambda tab: tab.order)
        entries = [entry for page in PAGES for entry in page.navigation]
        self._navigation = sorted(entries, key=lambda entry: entry.order)
        routes = [self._route(route) for page in PAGES for route in page.routes]
        self._app = Starlette(
            routes=[
                Route("/-/static/{version}/{path:path}", self._send_static, methods=["GET"]),
                *(Route(address, _go_home, methods=["GET"]) for address in ("/", "/-", "/-/")),
                *routes,
            ],
            exception_handlers={HTTPException: self._answer_unknown_address},
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    def api_of(self, caller: Caller) -> YardApi:
        return YardApi(self._yard, self._models, caller, self._region, self._clock)

    async def has_session(self, request: Request) -> bool:
        """Whether the session of a request is valid still. Its user may have signed out, or been removed."""
        return await find_session(self.identities, request, now=self._clock()) is not None

    def tabs_of(self, kind: str) -> list[JobTab]:
        """Return the tabs on the pages of a kind of job."""
        return [tab for tab in self._tabs if tab.kind == kind]

    def navigation_of(self, user: Caller) -> list[NavigationEntry]:
        return [entry for entry in self._navigation if user.is_admin or not entry.is_for_admins]

    def close(self) -> None:
        """End the streams of open pages, so that the yard can stop."""
        self.streams.close()

    def _route(self, route: PageRoute) -> Route:
        async def answer(request: Request) -> Response:
            return await self._answer(route, request)

        return Route(f"/-{route.path}", answer, methods=[route.method])

    async def _answer(self, route: PageRoute, request: Request) -> Response:
        response = await self._answer_if_allowed(route, request)
        is_document = route.is_document and response.status_code == 200
        response.headers.update(security_headers(is_embeddable=route.is_embeddable, is_document=is_document))
        response.headers.setdefault("cache-control", "no-store")
        return response

    async def _answer_if_allowed(self, route: PageRoute, request: Request) -> Response:
        now = self._clock()
        visit = Visit(self, request, now, None)
        if not self._hosts.includes(request.headers.get("host", "")):
            return visit.error(
                "The address in the browser has a host name that this yard does not have. Use its address, or add the "
                "name to the setting `hostnames` of the yard.",
                status=403,
            )
        session = await find_session(self.identities, request, now=now)
        if session is None and not route.is_public:
            return _ask_to_sign_in(visit)
        visit = Visit(self, request, now, session)
        if session is not None:
            _mark_authenticated(request)
        if request.method == "POST" and not _comes_from_dashboard(route, visit):
            return visit.error(
                "This request did not come from a page of the dashboard, or the page is older than the session. Open "
                "the page again and repeat what you did.",
                status=403,
            )
        return await self._handle(route, visit)

    async def _handle(self, route: PageRoute, visit: Visit) -> Response:
        try:
            return await route.handler(visit)
        except ApiFault as fault:
            return visit.error(fault.message, status=fault.status, code=fault.code)
        except BadRequest as error:
            return visit.error(str(error), status=400, code="BadRequest")
        except Fault as fault:
            return visit.error(fault.message, status=fault.status, code=fault.code)
        except Exception as error:
            log.error("page broke", exc_info=error, extra={"path": visit.request.url.path})
            return visit.error(
                "The page could not be made because of a fault in Trainyard. `trainyard doctor` shows what the yard "
                f"logged about it, under the path {visit.request.url.path}.",
                status=500,
                code="InternalFailure",
            )

    async def _send_static(self, request: Request) -> Response:
        file = self._files.find(request.path_params["path"])
        if file is None:
            return Response("There is no such file.\n", 404, media_type="text/plain")
        # A page of an older version asks for its files under the older address, which then must not stay cached.
        is_current = request.path_params["version"] == self._files.version
        cache = "public, max-age=31536000, immutable" if is_current else "no-store"
        headers = security_headers() | {"cache-control": cache}
        return FileResponse(file, media_type=STATIC_TYPES[file.suffix], headers=headers)

    async def _answer_unknown_address(self, request: Request, error: Exception) -> Response:
        """Answer a request that no page has an address for, as every page is answered."""
        status = error.status_code if isinstance(error, HTTPException) else 500

        async def refuse(visit: Visit) -> Response:
            return visit.error("The dashboard has no page at this address.", status=status)

        return await self._answer(PageRoute(request.method, "", refuse), request)


def _comes_from_dashboard(route: PageRoute, visit: Visit) -> bool:
    """Whether a page of this dashboard sent a request, and of this session if anybody is signed in."""
    if not is_same_origin(visit.request):
        return False
    token = visit.request.headers.get("x-csrf-token", "")
    return route.is_public or (visit.session is not None and visit.session.has_csrf_token(token))


async def _go_home(_request: Request) -> Response:
    return RedirectResponse(HOME_PAGE, 303)


def _ask_to_sign_in(visit: Visit) -> Response:
    if not visit.wants_page:
        return visit.error("Your session has ended. Reload the page to sign in again.", status=401, code="SignedOut")
    address = visit.request.url
    wanted = f"{address.path}?{address.query}" if address.query else address.path
    if wanted == HOME_PAGE:
        return RedirectResponse(SIGN_IN_PAGE, 303)
    return RedirectResponse(f"{SIGN_IN_PAGE}?next={quote(wanted, safe='/')}", 303)


def _mark_authenticated(request: Request) -> None:
    connection = request.scope.get("extensions", {}).get(EXTENSION, {}).get("connection")
    if connection is not None:
        connection.mark_authenticated()
