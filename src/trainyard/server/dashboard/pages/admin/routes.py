"""The routes of the administration."""

from starlette.responses import Response

from trainyard.server.dashboard.contract import Handler, NavigationEntry, Page, PageRoute, Visit, get, post
from trainyard.server.dashboard.pages.admin.engines import follow_engines, show_engines
from trainyard.server.dashboard.pages.admin.faults import show_faults
from trainyard.server.dashboard.pages.admin.quotas import (
    delete_quota,
    delete_storage_quota,
    put_quota,
    put_storage_quota,
    show_quotas,
)
from trainyard.server.dashboard.pages.admin.section import SECTIONS, for_administrators
from trainyard.server.dashboard.pages.admin.settings import show_settings
from trainyard.server.dashboard.pages.admin.storage import show_storage
from trainyard.server.dashboard.pages.admin.users import add_user, remove_user, show_users


async def show_first_section(visit: Visit) -> Response:
    return visit.redirect(SECTIONS[0].address)


def _get(path: str, handler: Handler) -> PageRoute:
    return get(f"/admin{path}", for_administrators(handler))


def _post(path: str, handler: Handler) -> PageRoute:
    return post(f"/admin{path}", for_administrators(handler))


PAGE = Page(
    "admin",
    routes=(
        _get("", show_first_section),
        _get("/users", show_users),
        _post("/users/add", add_user),
        _post("/users/remove", remove_user),
        _get("/quotas", show_quotas),
        _post("/quotas/put", put_quota),
        _post("/quotas/delete", delete_quota),
        _post("/quotas/storage/put", put_storage_quota),
        _post("/quotas/storage/delete", delete_storage_quota),
        _get("/storage", show_storage),
        _get("/engines", show_engines),
        _get("/engines/live", follow_engines),
        _get("/settings", show_settings),
        _get("/faults", show_faults),
    ),
    navigation=(NavigationEntry("Admin", "/-/admin", order=90, is_for_admins=True),),
)
