"""`trainyard open`: open the dashboard in a browser, signed in."""

import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urljoin

import click

from trainyard._sdk.connection import Access, Api
from trainyard.cli.completion.values import complete_jobs
from trainyard.cli.jobs.kinds import KINDS, kind_of, name_of
from trainyard.cli.jobs.lookup import find_access, find_job, open_api
from trainyard.cli.terminal.console import CommandWithExamples, environment, result_option, say, yard_option
from trainyard.cli.terminal.json_output import JsonFields, print_json


@click.command(
    "open",
    cls=CommandWithExamples,
    examples=(
        "trainyard open                    the list of all jobs",
        "trainyard open @last              the page of the latest job",
        "trainyard open mnist-1 --print    print the link, to open it in a browser elsewhere",
    ),
)
@click.argument("job", metavar="[JOB]", required=False, shell_complete=complete_jobs)
@click.option("--print", "only_prints", is_flag=True, help="Print the link instead of opening a browser.")
@yard_option
@result_option("Url")
def open(  # noqa: A001 - the name of the command
    job: str | None, only_prints: bool, folder: Path | None, as_json: JsonFields | None
) -> None:
    """Open the dashboard in a browser: all jobs, or the page of one.

    The link signs the browser in as you. It works once and for 15 minutes, so do not send it to others. A yard on
    another machine that listens on its loopback only is reached through a tunnel: ssh -L 4780:localhost:4780 MACHINE.
    """
    access = find_access(folder)
    with open_api(folder) as api:
        found = find_job(api, job, kinds=KINDS) if job else None
        page = f"/-/{kind_of(found).word}/{quote(name_of(found))}" if found else ""
        url = sign_in_url(access, api, page)
    if as_json:
        print_json({"Url": url}, as_json)
    elif only_prints or not _has_browser(environment()) or not webbrowser.open(url):
        click.echo(url)
    else:
        say(f"Opened {access.url}/-/ in the browser.")


def _has_browser(variables: Mapping[str, str]) -> bool:
    """Whether a window can be opened. A browser in the terminal would not run the scripts of the pages."""
    return sys.platform == "darwin" or any(variables.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def sign_in_url(access: Access, api: Api, page: str = "") -> str:
    """Return an address that signs a browser in once, and leads it to a page."""
    path: str = api.call("trainyard", "CreateSignInLink")["Path"]
    following = f"&next={quote(page)}" if page else ""
    return urljoin(access.url, path + following)
