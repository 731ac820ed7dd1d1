"""How many instances users may have at the same time, and how much they may store."""

from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.pages.admin.section import render_section
from trainyard.server.dashboard.rendering import format_bytes
from trainyard.server.dashboard.visit import BadRequest

# Sizes are shown with these units, so they are entered with them, too.
UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
_SUGGESTED_USERS = 100


async def show_quotas(visit: Visit) -> Response:
    quotas = await visit.api.call("trainyard", "ListQuotas")
    users = await visit.api.call("iam", "ListUsers", {"MaxItems": _SUGGESTED_USERS})
    return render_section(
        visit,
        "quotas",
        quotas=quotas["Quotas"],
        storage_quotas=quotas["StorageQuotas"],
        user_names=[each["UserName"] for each in users["Users"]],
        units=list(UNITS),
    )


async def put_quota(visit: Visit) -> Response:
    body = await visit.read_json()
    limit = _number(body.get("limit"), "The limit")
    if limit != int(limit):
        raise BadRequest("The limit is a number of instances, so it must be whole.")
    quota = _quota_key(body) | {"Limit": int(limit)}
    await visit.api.call("trainyard", "PutQuota", quota)
    return visit.json({"said": f"{_user(quota)} may have {int(limit)} instances of {_type(quota)}."})


async def delete_quota(visit: Visit) -> Response:
    quota = _quota_key(await visit.read_json())
    await visit.api.call("trainyard", "DeleteQuota", quota)
    return visit.json({"said": f"Removed the quota of {_user(quota)} for {_type(quota)}."})


async def put_storage_quota(visit: Visit) -> Response:
    body = await visit.read_json()
    unit = UNITS.get(str(body.get("unit")))
    if unit is None:
        raise BadRequest(f"The unit must be one of {', '.join(UNITS)}.")
    size_bytes = int(_number(body.get("size"), "The size") * unit)
    await visit.api.call("trainyard", "PutStorageQuota", {"UserName": body.get("user"), "LimitBytes": size_bytes})
    return visit.json({"said": f"{_user({'UserName': body.get('user')})} may store {format_bytes(size_bytes)}."})


async def delete_storage_quota(visit: Visit) -> Response:
    user = (await visit.read_json()).get("user")
    await visit.api.call("trainyard", "DeleteStorageQuota", {"UserName": user})
    return visit.json({"said": f"Removed the storage quota of {_user({'UserName': user})}."})


def _quota_key(body: dict[str, Any]) -> dict[str, Any]:
    return {"UserName": body.get("user"), "InstanceType": body.get("type"), "Kind": body.get("kind")}


def _number(given: object, what: str) -> float:
    try:
        number = float(str(given))
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e15:
        raise BadRequest(f'{what} must be a number from 0 on, not "{str(given)[:50]}".')
    return number


def _user(quota: dict[str, Any]) -> str:
    return "each user" if quota["UserName"] == "*" else str(quota["UserName"])


def _type(quota: dict[str, Any]) -> str:
    return "all types" if quota["InstanceType"] == "*" else str(quota["InstanceType"])
