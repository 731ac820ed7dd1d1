"""Quotas: visible to the users they limit, set by administrators."""

from trainyard.foundation.errors import NotPermitted
from trainyard.server.jobs.quotas import ANY, CapacityKind, Quota, Quotas, QuotaUse
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.storage import StorageQuotas, StorageUse


def list_quotas(call: Call, shape: Shape) -> Shape:
    """List all quotas for an administrator; for others, those that apply to them."""
    user = shape.get("UserName")
    if not call.caller.is_admin:
        if user not in (None, call.caller.user):
            raise NotPermitted("Only an administrator can list the quotas of other users.")
        user = call.caller.user
    return {
        "Quotas": [_quota(each) for each in Quotas(call.yard.records).list(user)],
        "StorageQuotas": [_storage_quota(each) for each in _storage(call).list(user)],
    }


def put_quota(call: Call, shape: Shape) -> Shape:
    """Set or change a quota of instances; for administrators."""
    _require_administrator(call)
    instance_type = shape["InstanceType"]
    if instance_type != ANY:
        # Raises InvalidRequest for an unknown type.
        call.yard.compute.catalog[instance_type]
    quota = Quota(shape["UserName"], instance_type, CapacityKind(shape["Kind"]), shape["Limit"])
    Quotas(call.yard.records).put(quota, now=call.now)
    return {}


def delete_quota(call: Call, shape: Shape) -> Shape:
    """Remove a quota of instances; for administrators."""
    _require_administrator(call)
    kind = CapacityKind(shape["Kind"])
    Quotas(call.yard.records).remove(shape["UserName"], shape["InstanceType"], kind=kind, now=call.now)
    return {}


def put_storage_quota(call: Call, shape: Shape) -> Shape:
    """Set or change how much a user can store; for administrators."""
    _require_administrator(call)
    _storage(call).put(shape["UserName"], shape["LimitBytes"])
    return {}


def delete_storage_quota(call: Call, shape: Shape) -> Shape:
    """Remove a storage quota; for administrators."""
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
        raise NotPermitted("Only an administrator can set quotas; ask one.")


def _storage_quota(usage: StorageUse) -> Shape:
    return {"UserName": usage.user, "LimitBytes": usage.limit_bytes, "UsedBytes": usage.used_bytes}


def _quota(usage: QuotaUse) -> Shape:
    quota = usage.quota
    return {
        "UserName": quota.user,
        "InstanceType": quota.instance_type,
        "Kind": quota.kind,
        "Limit": quota.limit,
        "Use": usage.use,
    }
