"""Quotas: seen by those whom they limit, set by administrators."""

from trainyard.foundation.errors import NotPermitted
from trainyard.server.quotas import ANY, CapacityKind, Quota, Quotas, QuotaUse
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.storage import StorageQuotas, StorageUse


def list_quotas(call: Call, shape: Shape) -> Shape:
    """All of them for an administrator; for others those that concern them."""
    user = shape.get("UserName")
    if not call.caller.is_admin:
        if user not in (None, call.caller.user):
            raise NotPermitted("Only an administrator sees the quotas of other users.")
        user = call.caller.user
    return {
        "Quotas": [_quota(each) for each in Quotas(call.yard.records).list(user)],
        "StorageQuotas": [_storage_quota(each) for each in _storage(call).list(user)],
    }


def put_quota(call: Call, shape: Shape) -> Shape:
    """Set or change a limit; for administrators."""
    _require_administrator(call)
    instance_type = shape["InstanceType"]
    if instance_type != ANY:
        call.yard.workshop.catalog[instance_type]  # InvalidRequest for a type that nobody knows
    quota = Quota(shape["UserName"], instance_type, CapacityKind(shape["Kind"]), shape["Limit"])
    Quotas(call.yard.records).put(quota, now=call.now)
    return {}


def delete_quota(call: Call, shape: Shape) -> Shape:
    """Take a limit away; for administrators."""
    _require_administrator(call)
    kind = CapacityKind(shape["Kind"])
    Quotas(call.yard.records).remove(shape["UserName"], shape["InstanceType"], kind=kind, now=call.now)
    return {}


def put_storage_quota(call: Call, shape: Shape) -> Shape:
    """Set or change how much a user may keep; for administrators."""
    _require_administrator(call)
    _storage(call).put(shape["UserName"], shape["LimitBytes"])
    return {}


def delete_storage_quota(call: Call, shape: Shape) -> Shape:
    """Take such a limit away; for administrators."""
    _require_administrator(call)
    _storage(call).remove(shape["UserName"])
    return {}


OPERATIONS: Operations = {
    "ListQuotas": list_quotas,
    "PutQuota": put_quota,
    "DeleteQuota": delete_quota,
    "PutStorageQuota": put_storage_quota,
    "DeleteStorageQuota": delete_storage_quota,
}


def _storage(call: Call) -> StorageQuotas:
    return StorageQuotas(call.yard.records, call.yard.objects)


def _require_administrator(call: Call) -> None:
    if not call.caller.is_admin:
        raise NotPermitted("Only an administrator sets quotas; ask one.")


def _storage_quota(known: StorageUse) -> Shape:
    return {"UserName": known.user, "LimitBytes": known.limit_bytes, "UsedBytes": known.used_bytes}


def _quota(known: QuotaUse) -> Shape:
    quota = known.quota
    return {
        "UserName": quota.user,
        "InstanceType": quota.instance_type,
        "Kind": quota.kind,
        "Limit": quota.limit,
        "Use": known.use,
    }
