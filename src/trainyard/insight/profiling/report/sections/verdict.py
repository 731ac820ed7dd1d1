"""The verdict: the one bottleneck, how sure that is, what to do, what it costs, and what has changed."""

from collections.abc import Iterator, Mapping, Sequence

from trainyard.insight.profiling.report.charts.cells import bar_cell
from trainyard.insight.profiling.report.contract import ReportSource
from trainyard.insight.profiling.report.labels import BOTTLENECKS
from trainyard.insight.profiling.report.markup import NOTHING, Html, element, join
from trainyard.insight.profiling.report.sections.section import Section, subsection
from trainyard.insight.profiling.report.tables import TableColumn, draw_table
from trainyard.insight.profiling.report.units import (
    UNKNOWN,
    duration_text,
    money_text,
    number_text,
    share_text,
    speedup_text,
)
from trainyard.insight.profiling.verdict.contract import (
    Bottleneck,
    BottleneckKind,
    ProfileAdvice,
    ProfileCosts,
    Regression,
)

CENT = 0.01


def write_verdict(source: ReportSource) -> Section:
    verdict = source.verdict
    parts = [
        _headline(verdict.summary, verdict.bottleneck),
        _regression(verdict.regression) if verdict.regression else None,
        _costs(verdict.costs),
        _advice(verdict.advice, verdict.costs.currency),
        _others(verdict.others),
    ]
    return Section("verdict", "Verdict", join(parts))


def write_notes(source: ReportSource) -> Section | None:
    """Return what is missing, or None if nothing is."""
    notes = list(_all_notes(source))
    if not notes:
        return None
    items = element("ul", *(element("li", note) for note in notes), class_="notes")
    return Section("notes", "What is missing", items, "What could not be read or judged, and why.", str(len(notes)))


def _all_notes(source: ReportSource) -> Iterator[str]:
    seen = set()
    told = [*source.profile.notes, *source.verdict.notes]
    told += [f"{place}: {note}" for place, trace in source.traces.items() for note in trace.notes]
    told += [f"{each.name}: {each.check.undecided}" for each in source.rules if each.check.undecided]
    for note in told:
        if note and note not in seen:
            seen.add(note)
            yield note


def _headline(summary: str, bottleneck: Bottleneck | None) -> Html:
    if bottleneck is None:
        return element("div", element("p", summary, class_="summary"), class_="headline")
    # A job that computes all the time is as it should be.
    is_fine = bottleneck.kind is BottleneckKind.COMPUTE
    colour = "var(--accent)" if is_fine else "var(--warn)"
    chips = [element("span", BOTTLENECKS[bottleneck.kind], class_="chip good" if is_fine else "chip strong")]
    if bottleneck.max_speedup is not None:
        chips.append(
            element("span", f"at most {speedup_text(bottleneck.max_speedup)} as fast without it", class_="chip")
        )
    meter = element(
        "div",
        element("div", bar_cell(bottleneck.share, colour=colour), class_="meter"),
        element("p", element("b", share_text(bottleneck.share)), " of each step"),
        class_="share",
    )
    evidence = element("ul", *(element("li", each) for each in bottleneck.evidence), class_="evidence")
    title = element("p", bottleneck.title, class_="cause") if bottleneck.title not in summary else None
    left = element("div", element("div", *chips, class_="chips"), element("p", summary, class_="summary"), title, meter)
    right = element("div", element("h3", "Evidence"), evidence) if bottleneck.evidence else NOTHING
    return element("div", left, right, class_="headline split")


def _regression(regression: Regression) -> Html:
    is_slower = regression.ratio > 1
    badge = element("b", "Slower than before." if is_slower else "Faster than before.")
    return element("p", badge, " ", regression.message, class_=f"callout {'bad' if is_slower else 'good'}", role="note")


def _costs(costs: ProfileCosts) -> Html:
    tiles = [
        ("Mean step", duration_text(costs.step_s) if costs.step_s is not None else ""),
        ("Samples per second", number_text(costs.samples_per_s) if costs.samples_per_s is not None else ""),
        _money(costs.money_per_step, costs.currency, {"a step": 1, "1,000 steps": 1e3, "a million steps": 1e6}),
        _money(costs.money_per_million_samples, costs.currency, {"a million samples": 1, "a billion samples": 1e3}),
        ("Energy per step", _joules(costs.joules_per_step)),
        ("Energy per sample", _joules(costs.joules_per_sample)),
    ]
    shown = [element("div", element("dt", name), element("dd", value)) for name, value in tiles if value]
    return element("dl", *shown, class_="tiles") if shown else NOTHING


def _money(value: float | None, currency: str, counts: Mapping[str, float]) -> tuple[str, str]:
    """Return what so many of something cost: as many as cost a cent, or the most."""
    if value is None:
        return "", ""
    what = next((each for each, count in counts.items() if value * count >= CENT), list(counts)[-1])
    return f"Cost of {what}", money_text(value * counts[what], currency)


def _joules(value: float | None) -> str:
    return "" if value is None else f"{number_text(value)} J"


def _advice(advice: Sequence[ProfileAdvice], currency: str) -> Html:
    if not advice:
        return NOTHING
    items = [element("li", _advice_item(each, currency)) for each in advice]
    return subsection("What to do", element("ol", *items, class_="advice"))


def _advice_item(advice: ProfileAdvice, currency: str) -> Html:
    gains = []
    if advice.max_speedup is not None:
        gains.append(f"at most {speedup_text(advice.max_speedup)} as fast")
    if advice.saved_per_hour is not None:
        gains.append(f"saves {money_text(advice.saved_per_hour, currency)} per hour")
    chips = [element("span", gain, class_="chip") for gain in gains]
    changes = [element("code", f"{change.value}={value}") for change, value in advice.changes.items()]
    trial = element("p", "A trial can measure it: ", join(changes, ", "), class_="aside") if changes else None
    return join([element("p", element("strong", advice.title), *chips), element("p", advice.reason), trial])


def _others(others: Sequence[Bottleneck]) -> Html:
    rows = [
        (
            BOTTLENECKS[each.kind],
            element("div", element("p", each.title), *(element("p", line, class_="aside") for line in each.evidence)),
            share_text(each.share),
            bar_cell(each.share, colour="var(--warn)"),
            speedup_text(each.max_speedup) if each.max_speedup is not None else UNKNOWN,
        )
        for each in others
    ]
    columns = [
        TableColumn("Cause"),
        TableColumn("What was seen", is_prose=True),
        TableColumn("Share of a step", is_number=True),
        TableColumn("", is_wide=True),
        TableColumn("At most", is_number=True),
    ]
    table = draw_table("Further causes of lost time", columns, rows)
    return subsection("Also seen", table) if rows else NOTHING
