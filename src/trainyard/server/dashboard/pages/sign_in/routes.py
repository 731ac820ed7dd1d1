"""Signing in, by a key pair or a one-time link, and signing out."""

import asyncio

from starlette.responses import Response

from trainyard.foundation.errors import NotFound
from trainyard.server.dashboard.addresses import HOME_PAGE, SIGN_IN_PAGE
from trainyard.server.dashboard.contract import Page, Visit, get, post
from trainyard.server.dashboard.sessions import begin_session, check_secret, end_session
from trainyard.server.sign_in_links import redeem_link

_USED = (
    "This link was used already or has expired: each works once. `trainyard open`, on a machine that can use the yard, "
    "makes another."
)
_WRONG = "The yard knows no active key pair with this id and secret. `trainyard env` prints yours."
_TEMPORARY = "These are temporary credentials. Sign in with a key pair of a user, whose id begins with AKIA."


async def show_form(visit: Visit) -> Response:
    """Show the form, or sign in at once when the address has a one-time code."""
    if code := visit.query.get("code", ""):
        return await _follow_link(visit, code)
    if visit.session is not None:
        return visit.redirect(_next_page(visit.query.get("next", "")))
    return _form(visit, next_page=visit.query.get("next", ""))


async def sign_in(visit: Visit) -> Response:
    form = await visit.read_form()
    key_id, next_page = form.get("key_id", "").strip(), form.get("next", "")
    if key_id.startswith("ASIA"):
        return _form(visit, next_page=next_page, key_id=key_id, problem=_TEMPORARY)
    secret = form.get("secret", "").strip()
    identities = visit.dashboard.identities
    found = await asyncio.to_thread(check_secret, identities, key_id, secret, now=visit.now)
    if found is None:
        return _form(visit, next_page=next_page, key_id=key_id, problem=_WRONG)
    response = visit.redirect(_next_page(next_page))
    await begin_session(identities, found.caller.account, visit.request, response, now=visit.now)
    return response


async def sign_out(visit: Visit) -> Response:
    response = visit.json({"next": SIGN_IN_PAGE})
    assert visit.session is not None, "the route is not public"
    await end_session(visit.dashboard.identities, visit.session, visit.request, response)
    return response


PAGE = Page(
    "sign_in",
    routes=(
        get("/sign-in", show_form, is_public=True),
        post("/sign-in", sign_in, is_public=True),
        post("/sign-out", sign_out),
    ),
)


async def _follow_link(visit: Visit, code: str) -> Response:
    try:
        account = await asyncio.to_thread(redeem_link, visit.dashboard.records, code, now=visit.now)
    except NotFound:
        return _form(visit, next_page=visit.query.get("next", ""), problem=_USED)
    response = visit.redirect(_next_page(visit.query.get("next", "")))
    await begin_session(visit.dashboard.identities, account, visit.request, response, now=visit.now)
    return response


def _form(visit: Visit, *, next_page: str, key_id: str = "", problem: str = "") -> Response:
    status = 403 if problem else 200
    return visit.render("sign_in/sign_in.html", status=status, next_page=next_page, key_id=key_id, problem=problem)


def _next_page(address: str) -> str:
    """Return the page that was asked for before the sign-in. Never one of another site."""
    return address if address.startswith("/-/") else HOME_PAGE
