"""ListFaults and ListSettings: what administrators look at when a yard misbehaves."""

from trainyard.foundation.errors import NotPermitted
from trainyard.server.fault_log import LoggedFault, read_faults
from trainyard.server.services.contract import Call, Operations, Shape

_PAGE = 100


def list_faults(call: Call, shape: Shape) -> Shape:
    """List the warnings and errors in the log of the server, newest first; for administrators."""
    _require_administrator(call, "the log of the server")
    log = call.yard.own.log_file
    if log is None:
        return {"Faults": [], "NextToken": None}
    page = read_faults(
        log,
        level=shape.get("Level", "warning"),
        text=shape.get("Text", ""),
        limit=shape.get("MaxResults", _PAGE),
        after=shape.get("NextToken", ""),
    )
    return {"Faults": [_fault(each) for each in page.faults], "LogFile": str(log), "NextToken": page.following}


def list_settings(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - the request has no members
    """List the settings with which the server runs; for administrators. Secrets are never returned."""
    _require_administrator(call, "the settings of the yard")
    settings = [
        {
            "Name": each.name,
            "Help": each.help,
            "Value": None if each.is_secret else each.value,
            "Default": each.default,
            "Secret": each.is_secret,
            "Origin": each.source,
        }
        for each in call.yard.own.settings
    ]
    file = call.yard.own.settings_file
    return {"Settings": settings, "File": str(file) if file else None}


OPERATIONS: Operations = {"ListFaults": list_faults, "ListSettings": list_settings}


def _fault(fault: LoggedFault) -> Shape:
    return {
        "Time": fault.at,
        "Level": fault.level,
        "Source": fault.source,
        "Message": fault.message,
        "Fields": fault.fields,
        "Traceback": fault.traceback or None,
    }


def _require_administrator(call: Call, what: str) -> None:
    if not call.caller.is_admin:
        raise NotPermitted(f"Only an administrator can read {what}; ask one.")
