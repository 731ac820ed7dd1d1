"""What the yard concluded from the profile of a job, as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard._sdk.profiling.conclusion import (
    JobConclusion,
    ProfileAdvice,
    ProfileCosts,
    ProfileVerdict,
    verdict_of,
)
from trainyard._sdk.training.console import terminal_safe
from trainyard.cli.terminal.blocks import Block, Table, Title
from trainyard.cli.terminal.console import size_text
from trainyard.cli.terminal.tables import Column

# The units of metrics, by the ends of their names.
_UNITS = (
    ("_percent", "%"),
    ("_bytes_s", "/s"),
    ("_bytes", ""),
    ("_watts", " W"),
    ("_mhz", " MHz"),
    ("_celsius", " °C"),
)
_MAX_RANKS = 16


def profile_blocks(profile: JobConclusion) -> Iterator[Block]:
    """Yield the verdict, where the time of steps goes, the hardware, the rules, and where the report is."""
    verdict = verdict_of(profile)
    yield Title(terminal_safe(verdict.summary))
    yield from _step_blocks(profile["Phases"])
    yield from _hardware_blocks(profile["Hardware"])
    yield from _rule_blocks(profile["Rules"])
    if profile["Report"]:
        yield ""
        yield f"report  {profile['Report']}"
    yield from _note_blocks((*verdict.notes, *profile["Notes"]))


def verdict_blocks(verdict: ProfileVerdict) -> Iterator[Block]:
    """Yield the verdict with its evidence, what else costs time, the costs, and the change since earlier runs."""
    yield Title(terminal_safe(verdict.summary))
    if verdict.bottleneck is not None:
        yield from (f"  {terminal_safe(line)}" for line in verdict.bottleneck.evidence)
    if verdict.regression is not None:
        yield ""
        yield terminal_safe(verdict.regression.message)
    if verdict.others:
        yield ""
        yield Title("What else costs time")
        yield Table(
            ["cause", Column("of the step", align="right"), Column("at most", align="right")],
            [(terminal_safe(each.title), f"{each.share:.0%}", _factor(each.max_speedup)) for each in verdict.others],
        )
    if costs := _cost_text(verdict.costs):
        yield ""
        yield costs


def advice_lines(number: int, advice: ProfileAdvice) -> Iterator[Block]:
    """Yield one piece of advice: what to do, why, and what it brings at most."""
    bound = f", at most {_factor(advice.max_speedup)} as fast" if advice.max_speedup else ""
    saved = f", {advice.saved_per_hour:.2f} less an hour" if advice.saved_per_hour else ""
    yield Title(f"{number}. {terminal_safe(advice.title)}{bound}{saved}")
    yield f"   {terminal_safe(advice.reason)}"


def _factor(speedup: float | None) -> str:
    if not speedup:
        return ""
    return f"{speedup:.2f}x" if speedup < 1.1 else f"{speedup:.1f}x" if speedup < 9.95 else f"{speedup:.0f}x"


def _step_blocks(workers: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """Yield the phases of each rank, by the columns that any of them has."""
    timed = [worker for worker in workers if worker.get("Steps")]
    if not timed:
        return
    names = list(dict.fromkeys(name for worker in timed for name, mean in worker["PhaseSeconds"].items() if mean > 0))
    columns: list[Column | str] = [
        "rank",
        *(Column(title, align="right") for title in ("steps", "step", *map(_words, names))),
    ]
    rows = [_step_row(worker, names) for worker in timed[:_MAX_RANKS]]
    yield ""
    yield Title("Steps")
    yield Table(columns, rows)
    if len(timed) > _MAX_RANKS:
        yield f"and {len(timed) - _MAX_RANKS} more ranks"


def _step_row(worker: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    means, step_s = worker["PhaseSeconds"], worker["StepSeconds"]
    shares = (f"{means.get(name, 0) / step_s:.0%}" if step_s else "" for name in names)
    return terminal_safe(worker["Worker"]), f"{worker['Steps']:,}", _duration(step_s), *shares


def _hardware_blocks(series: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    if not series:
        return
    rows = [
        (
            terminal_safe(each["Instance"]),
            _words(each["Metric"]),
            terminal_safe(each["Device"]),
            _value(each["Metric"], each["Value"]),
            _value(each["Metric"], each["Mean"]),
        )
        for each in series
    ]
    yield ""
    yield Title("Hardware")
    yield Table(["instance", "metric", "device", *(Column(title, align="right") for title in ("latest", "mean"))], rows)


def _rule_blocks(rules: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    if not rules:
        return
    yield ""
    yield Title("Rules")
    rows = [(each["Name"], each["Status"], terminal_safe(each.get("Details", ""))) for each in rules]
    yield Table(["rule", "status", "details"], rows)


def _note_blocks(notes: Sequence[str]) -> Iterator[Block]:
    if notes:
        yield ""
        yield Title("Notes")
        yield from (f"  {terminal_safe(note)}" for note in dict.fromkeys(notes))


def _cost_text(costs: ProfileCosts) -> str:
    parts = []
    if costs.step_s:
        parts.append(f"{_duration(costs.step_s)} per step")
    if costs.samples_per_s:
        parts.append(f"{_number(costs.samples_per_s)} samples/s")
    if costs.money_per_million_samples:
        parts.append(f"{_number(costs.money_per_million_samples)} {costs.currency} per million samples")
    elif costs.money_per_step:
        parts.append(f"{_number(costs.money_per_step * 1000)} {costs.currency} per 1000 steps")
    if costs.joules_per_step:
        parts.append(f"{_number(costs.joules_per_step)} J per step")
    return f"Costs: {', '.join(parts)}" if parts else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def _words(name: str) -> str:
    for end, _ in _UNITS:
        name = name.removesuffix(end)
    return name.replace("_", " ")


def _value(metric: str, value: float) -> str:
    unit = next((unit for end, unit in _UNITS if metric.endswith(end)), "")
    return f"{size_text(value)}{unit}" if "_bytes" in metric else f"{_number(value)}{unit}"


def _duration(seconds: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if seconds < 0.9995 * limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
