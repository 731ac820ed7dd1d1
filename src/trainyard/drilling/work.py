"""What the second attempt of an interrupted run did again: whether it went on, or started over. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from trainyard.drilling.runs import FEWEST_LINES, Run
from trainyard.formats.extraction import Definition, MetricScanner

_ALIKE = 0.5  # of the lines of two runs: as many are the same in runs of scripts that print no times
_ALL_AGAIN = 0.95
_LONG = timedelta(seconds=30)  # a run of which its time tells something, however its Python was started


@dataclass(frozen=True, slots=True)
class Work:
    """Whether the work began from the beginning again, None where nothing tells, and by what one sees that."""

    has_started_over: bool | None
    evidence: str


def work_of(whole: Run, again: Run, definitions: Sequence[Definition]) -> Work:
    """Judged by the values of the metric that has most, else by the lines, else by the time."""
    stretches = (whole.lines_last, again.lines_before, again.lines_last)
    return (
        _by_metrics(*(_counts(lines, definitions) for lines in stretches))
        or _by_lines(*stretches)
        or _by_time(whole.trained_last, again.trained_last)
    )


def _by_metrics(whole: Mapping[str, int], before: Mapping[str, int], last: Mapping[str, int]) -> Work | None:
    name = max(whole, key=lambda each: whole[each], default=None)
    if name is None or whole[name] < 2 or not before.get(name):
        return None
    count, first, second = whole[name], before[name], last.get(name, 0)
    if second >= count:
        told = f'The second attempt told "{name}" {second} times, as often as the run without an interruption.'
        return Work(True, told)
    redone = max(0, first + second - count)
    told = f'It went on after value {count - second} of {count} of "{name}"; {redone} came twice.'
    return Work(False, told)


def _by_lines(whole: Sequence[str], before: Sequence[str], last: Sequence[str]) -> Work | None:
    if len(whole) < FEWEST_LINES or not before:
        return None
    known = set(whole)
    if sum(line in known for line in before) < _ALIKE * len(before):
        return _by_count(len(whole), len(last))
    early = {line for line in before if line in known}
    repeated = len(early & set(last))
    told = f"The second attempt printed {repeated} of the {len(early)} lines again that the first had printed."
    return Work(repeated >= _ALL_AGAIN * len(early), told)


def _by_count(whole: int, last: int) -> Work:
    told = f"The second attempt printed {last} lines, the run without an interruption {whole}."
    return Work(last >= whole, told)


def _by_time(whole: timedelta, last: timedelta) -> Work:
    if whole < _LONG:
        return Work(None, "The script prints too little to tell where it went on; define a metric, or let it print.")
    told = f"The second attempt trained for {last.total_seconds():.0f} s, the run without an interruption for "
    return Work(last >= 0.9 * whole, f"{told}{whole.total_seconds():.0f} s.")


def _counts(lines: Sequence[str], definitions: Sequence[Definition]) -> Mapping[str, int]:
    """How many values each metric has in some lines."""
    counts: dict[str, int] = {}
    text = "".join(f"{line}\n" for line in lines).encode(errors="surrogatepass")
    for found in MetricScanner(definitions, note=lambda _: None).scan(text):
        counts[found.metric] = counts.get(found.metric, 0) + 1
    return counts
