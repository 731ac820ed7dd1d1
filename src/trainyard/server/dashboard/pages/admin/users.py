"""The users of the yard and their keys."""

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.pages.admin.section import next_address, render_section
from trainyard.server.services.contract import Shape

ADMINISTRATORS = "/administrators/"
_PAGE = 50


async def show_users(visit: Visit) -> Response:
    after = visit.query.get("after", "")
    page = await visit.api.call("iam", "ListUsers", {"MaxItems": _PAGE} | ({"Marker": after} if after else {}))
    keys = await asyncio.gather(*(_keys_of(visit, each["UserName"]) for each in page["Users"]))
    users = [_user(each, its_keys) for each, its_keys in zip(page["Users"], keys, strict=True)]
    return render_section(
        visit, "users", users=users, next_address=next_address(visit, page.get("Marker", "")), is_first=not after
    )


async def add_user(visit: Visit) -> Response:
    """Add a user without a key pair: sessions of browsers may not make keys, which would outlive them."""
    body = await visit.read_json()
    path = ADMINISTRATORS if body.get("admin") else "/"
    await visit.api.call("iam", "CreateUser", {"UserName": body.get("name"), "Path": path})
    return visit.json({"said": f'Added "{body["name"]}".'})


async def remove_user(visit: Visit) -> Response:
    name = (await visit.read_json()).get("name")
    await visit.api.call("iam", "DeleteUser", {"UserName": name})
    return visit.json({"said": f'Removed "{name}". The jobs and objects of this user are kept.'})


async def _keys_of(visit: Visit, name: str) -> Sequence[Shape]:
    answer = await visit.api.call("iam", "ListAccessKeys", {"UserName": name})
    found: Sequence[Shape] = answer["AccessKeyMetadata"]
    return found


def _user(user: Shape, keys: Sequence[Shape]) -> dict[str, Any]:
    return {
        "name": user["UserName"],
        "account": user["Arn"].split(":")[4],
        "is_admin": user["Path"] == ADMINISTRATORS,
        "created_at": user["CreateDate"],
        "keys": [
            {"id": each["AccessKeyId"], "created_at": each["CreateDate"], "is_active": each["Status"] == "Active"}
            for each in keys
        ],
    }
