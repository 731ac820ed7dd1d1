"""The page: one file that loads nothing, with its style sheet and its script inside.

Its policy lets a browser run that one script, by its digest, and connect to nothing. So a name in the profile could do
no harm even if it were not escaped.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trainyard.insight.profiling.report.contract import ReportSource
from trainyard.insight.profiling.report.json_values import encode_json
from trainyard.insight.profiling.report.markup import Html, element
from trainyard.insight.profiling.report.sections.job import write_job
from trainyard.insight.profiling.report.sections.program import write_loading, write_program
from trainyard.insight.profiling.report.sections.rules import write_rules
from trainyard.insight.profiling.report.sections.section import Section
from trainyard.insight.profiling.report.sections.steps import write_steps
from trainyard.insight.profiling.report.sections.system import write_system
from trainyard.insight.profiling.report.sections.traces import write_traces
from trainyard.insight.profiling.report.sections.verdict import write_notes, write_verdict
from trainyard.insight.profiling.report.units import moment_text

# In the order of the page.
_SECTIONS = (
    write_verdict,
    write_job,
    write_steps,
    write_rules,
    write_loading,
    write_program,
    write_system,
    write_traces,
    write_notes,
)


def write_page(source: ReportSource, figures: Mapping[str, object]) -> str:
    """Return the page; `figures` are those of `summarize`, which it brings along for programs."""
    sections = [section for write in _SECTIONS if (section := write(source)) is not None]
    title = f"Profile of {source.profile.job}"
    data = element("script", Html(encode_json(figures)), type="application/json", id="profile-data")
    main = element("main", _header(source), *(section.draw() for section in sections), _footer(), id="top")
    body = element("body", _skip_link(), _navigation(sections), main, data, _script())
    document = element("html", _head(title), body, lang="en")
    return f"<!doctype html>\n{document}\n"


def _head(title: str) -> Html:
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_script_digest()}'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="referrer", content="no-referrer"),
        element("title", title),
        element("style", Html(_asset("page.css"))),
    )


def _skip_link() -> Html:
    return element("a", "Skip to the report", href="#top", class_="skip")


def _navigation(sections: list[Section]) -> Html:
    items = [
        element(
            "li",
            element(
                "a",
                each.short_title or each.title,
                element("span", each.count, class_="count") if each.count else None,
                href=f"#{each.anchor}",
            ),
        )
        for each in sections
    ]
    buttons = element(
        "div",
        element("button", "Theme", type="button", id="theme", aria_label="Switch between light and dark"),
        element("button", "Reset zoom", type="button", id="zoom", hidden=""),
        class_="buttons",
    )
    return element("nav", element("ul", *items), buttons, aria_label="Sections")


def _header(source: ReportSource) -> Html:
    state = "running" if source.profile.ended_us is None else "ended"
    about = [
        element("span", f"The job is {state}" if state == "running" else "The job has ended", class_=f"state {state}"),
        element("span", f"Written {moment_text(source.written_us)}"),
        element("span", source.region) if source.region else None,
    ]
    return element(
        "header",
        element("p", "Profiler report", class_="kind"),
        element("h1", source.profile.job),
        element("p", *about, class_="about"),
    )


def _footer() -> Html:
    text = (
        "Bounds on a speed-up are T / (T - t): what a job gains at most if a cause of lost time vanishes. "
        "Lines are averages of as many samples as a pixel holds, and their bands reach from the lowest to the highest."
    )
    return element("footer", element("p", text))


def _script() -> Html:
    return element("script", Html(_asset("page.js")))


@cache
def _asset(name: str) -> str:
    """Return a file of this package, which may not end the element that it becomes the content of."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    assert "</" not in text, f"{name} would end its element"
    return text


@cache
def _script_digest() -> str:
    return base64.b64encode(hashlib.sha256(_asset("page.js").encode()).digest()).decode()
