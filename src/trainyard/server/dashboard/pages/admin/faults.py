"""The warnings and errors in the log of the server."""

from starlette.responses import Response

from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.pages.admin.section import next_address, render_section

_PAGE = 50


async def show_faults(visit: Visit) -> Response:
    level = "error" if visit.query.get("level") == "error" else "warning"
    text, after = visit.query.get("text", "")[:1000], visit.query.get("after", "")
    asked = {"Level": level, "MaxResults": _PAGE} | ({"Text": text} if text else {})
    page = await visit.api.call("trainyard", "ListFaults", asked | ({"NextToken": after} if after else {}))
    return render_section(
        visit,
        "faults",
        faults=page["Faults"],
        next_address=next_address(visit, page.get("NextToken", "")),
        file=page.get("LogFile", ""),
        level=level,
        text=text,
        is_first=not after,
    )
