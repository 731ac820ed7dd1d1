"""The settings with which the server runs. They are changed in its file, and take effect at its next start."""

from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.pages.admin.section import render_section
from trainyard.server.services.contract import Shape


async def show_settings(visit: Visit) -> Response:
    answer = await visit.api.call("trainyard", "ListSettings")
    return render_section(
        visit, "settings", settings=[_setting(each) for each in answer["Settings"]], file=answer.get("File", "")
    )


def _setting(setting: Shape) -> dict[str, Any]:
    is_set = setting["Origin"] != "default"
    secret = "set, not shown" if is_set else "not set"
    return {
        "name": setting["Name"],
        "variable": f"TRAINYARD_SERVER_{setting['Name'].upper()}",
        # Every second part was between backticks.
        "help": setting["Help"].split("`"),
        "value": secret if setting["Secret"] else setting.get("Value", ""),
        "default": setting.get("Default", ""),
        "is_secret": setting["Secret"],
        "origin": setting["Origin"],
        "is_set": is_set,
    }
