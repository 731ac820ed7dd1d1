"""Evidence whether the second attempt of an interrupted run resumed or started over. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from trainyard._sdk.resume_drill.runs import MIN_LINES, DrillRun
from trainyard.formats.extraction import MetricPattern, MetricScanner

# Two runs print comparable lines if at least this share of the early lines appears in both.
_COMPARABLE_SHARE = 0.5
# A run that repeats at least this share of the early lines has started over.
_REPEATED_SHARE = 0.95
# Below this, the start of Python makes up too much of the training time to compare times.
_MIN_COMPARABLE_TIME = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class ResumeEvidence:
    """Whether the script started over, None if that is unknown, and the sentence that says how we know."""

    has_started_over: bool | None
    sentence: str


def find_evidence(whole: DrillRun, again: DrillRun, definitions: Sequence[MetricPattern]) -> ResumeEvidence:
    """Compare two runs by the metric with the most values, else by the lines, else by the time."""
    lines = (whole.lines_last, again.lines_before, again.lines_last)
    return (
        _by_metrics(*(_count_values(each, definitions) for each in lines))
        or _by_lines(*lines)
        or _by_time(whole.trained_last, again.trained_last)
    )


def _by_metrics(whole: Mapping[str, int], before: Mapping[str, int], last: Mapping[str, int]) -> ResumeEvidence | None:
    name = max(whole, key=lambda each: whole[each], default=None)
    if name is None or whole[name] < 2 or not before.get(name):
        return None
    count, first, second = whole[name], before[name], last.get(name, 0)
    if second >= count:
        sentence = f'The second attempt reported "{name}" {second} times, as often as the uninterrupted run.'
        return ResumeEvidence(True, sentence)
    repeated = max(0, first + second - count)
    sentence = f'It resumed after value {count - second} of {count} of "{name}"; {repeated} came twice.'
    return ResumeEvidence(False, sentence)


def _by_lines(whole: Sequence[str], before: Sequence[str], last: Sequence[str]) -> ResumeEvidence | None:
    if len(whole) < MIN_LINES or not before:
        return None
    known = set(whole)
    if sum(line in known for line in before) < _COMPARABLE_SHARE * len(before):
        return _by_line_count(len(whole), len(last))
    early = {line for line in before if line in known}
    repeated = len(early & set(last))
    sentence = f"The second attempt repeated {repeated} of the {len(early)} lines that the first had printed."
    return ResumeEvidence(repeated >= _REPEATED_SHARE * len(early), sentence)


def _by_line_count(whole: int, last: int) -> ResumeEvidence:
    sentence = f"The second attempt printed {last} lines, the uninterrupted run {whole}."
    return ResumeEvidence(last >= whole, sentence)


def _by_time(whole: timedelta, last: timedelta) -> ResumeEvidence:
    if whole < _MIN_COMPARABLE_TIME:
        return ResumeEvidence(
            None, "The script prints too little to show where it resumed; define a metric, or print more."
        )
    times = f"{last.total_seconds():.0f} s, the uninterrupted run for {whole.total_seconds():.0f} s"
    return ResumeEvidence(last >= 0.9 * whole, f"The second attempt trained for {times}.")


def _count_values(lines: Sequence[str], definitions: Sequence[MetricPattern]) -> Mapping[str, int]:
    """Return how many values each metric has in some lines."""
    counts: dict[str, int] = {}
    text = "".join(f"{line}\n" for line in lines).encode(errors="surrogatepass")
    for found in MetricScanner(definitions, note=lambda _: None).scan(text):
        counts[found.metric] = counts.get(found.metric, 0) + 1
    return counts
