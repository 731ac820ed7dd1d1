"""Every rule on every healthy and every faulty training, with AWS's defaults and with the advised ones.

    python -m benchmarks.rule_table [--seeds N] [--fault-seeds N] [--only NAME ...]

Each training runs with the real hook, which records what the rules need at every step. The rules are then evaluated on
the recording, as in a job. The findings are kept, and the table for the docs is written from all that are kept: with
`--only`, the other trainings are not run again.
"""

import argparse
import json
import os
import shutil
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.measurement import RESULTS
from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.recordings.arrow_recording import ArrowRecording
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.foundation.sources import FolderSource
from trainyard.insight.rules.catalog import RULES, make_rule
from trainyard.insight.rules.contract import DebuggerRule, Evaluation
from trainyard.insight.rules.parameters import Defaults
from trainyard.testing.trainings import TRAININGS
from trainyard.testing.trainings.boosting import BOOSTED, BOOSTING_FAULTS, BoostedTraining
from trainyard.testing.trainings.faults import FAULTS
from trainyard.testing.trainings.recorded import evaluate_rules, record, record_boosted, record_replicas
from trainyard.testing.trainings.training import SampleTraining

KEPT = RESULTS / "rule_table"
TABLE = Path(__file__).resolve().parents[1] / "docs" / "rules" / "table.md"
REPLICAS = "replicas"
# It compares replicas and nothing else.
ALONE = "ReplicaDivergence"
OTHER_RUN = "the run with the next seed"

# Parameters without a default, or with one that takes too long for a test.
GIVEN: Mapping[str, Mapping[str, str]] = {
    "AllZero": {"tensor_regex": r"relu\d*_output_0$,^[A-Z]\w*(?<!Loss)_input_0$"},
    "SimilarAcrossRuns": {"other_trials": OTHER_RUN},
    "TensorVariance": {
        "tensor_regex": r"^(?!gradient|optimizer)[^/]*(?<!norm)(?<!norm1)(?<!norm2)\.weight",
        "max_threshold": "5",
        "min_threshold": "1e-9",
    },
    "UnchangedTensor": {"collection_names": "weights,biases"},
}
# Parameters that find only one fault: by fault, then by rule.
GIVEN_FOR: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "stalled_loader": {"StalledTrainingRule": {"threshold": "1"}},
    "frozen_head": {"UnchangedTensor": {"tensor_regex": r"^Convolutional_output\."}},
}

Runnable = SampleTraining | BoostedTraining


@dataclass(frozen=True, slots=True)
class Subject:
    """A training that is run with several seeds: healthy, or with a fault that some rules should find."""

    name: str
    of: str
    wanted: tuple[str, ...] = ()
    step: int = 0
    summary: str = ""

    @property
    def is_faulty(self) -> bool:
        return bool(self.wanted)

    @property
    def is_replicated(self) -> bool:
        return self.name == REPLICAS or ALONE in self.wanted


@dataclass(frozen=True, slots=True)
class Found:
    """The finding of a rule in one run, and its training step."""

    subject: str
    seed: int
    rule: str
    defaults: Defaults
    step: int
    message: str


@dataclass(frozen=True, slots=True)
class Examined:
    """All findings in the runs of one subject, and the CPU time."""

    subject: Subject
    seeds: int
    cpu_s: float
    found: Sequence[Found]

    def by(self, rule: str, defaults: Defaults) -> list[Found]:
        return [each for each in self.found if (each.rule, each.defaults) == (rule, defaults)]


def main() -> None:
    arguments = _parser().parse_args()
    subjects = [each for each in all_subjects() if not arguments.only or each.name in arguments.only]
    for examined in _all_examined(subjects, seeds=arguments.seeds, fault_seeds=arguments.fault_seeds):
        keep(examined)
        print(f"{examined.subject.name} took {examined.cpu_s:.0f} s", flush=True)
    TABLE.write_text(page(load_findings()))
    print(f"wrote {TABLE}")


def all_subjects() -> list[Subject]:
    """Return all subjects, the healthy ones first."""
    healthy = [Subject(name, name) for name in TRAININGS]
    boosted = [Subject(each.name, name) for name, each in BOOSTED.items()]
    faults = [Subject(each.name, each.of.name, each.rules, each.step, each.summary) for each in FAULTS.values()]
    boosting_faults = [
        Subject(each.name, each.of.name, tuple(each.rules), 0, each.summary) for each in BOOSTING_FAULTS.values()
    ]
    return [*healthy, *boosted, Subject(REPLICAS, "mlp"), *faults, *boosting_faults]


def rules_for(subject: Subject) -> dict[str, DebuggerRule]:
    """Return each rule with each set of defaults, by names such as "DeadRelu/aws"."""
    given = {**GIVEN, **GIVEN_FOR.get(subject.name, {})}
    names = [name for name in RULES if (name == ALONE) == subject.is_replicated]
    return {
        f"{name}/{defaults}": make_rule(name, {**given.get(name, {}), "defaults": defaults.value})
        for name in names
        for defaults in Defaults
    }


def examine(subject: Subject, seeds: int) -> Examined:
    """Return everything that the rules find in the runs of one subject."""
    started = time.process_time()
    folders = [Path(tempfile.mkdtemp(prefix="rule-table-")) for _ in range(seeds)]
    try:
        for seed, folder in enumerate(folders):
            _record(subject, seed, folder)
        others = [*folders[1:], folders[0]] if seeds > 1 else [None]
        found: list[Found] = []
        for seed, (folder, other) in enumerate(zip(folders, others, strict=True)):
            found += _evaluate(subject, seed, folder, other=other)
        return Examined(subject, seeds, time.process_time() - started, found)
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def keep(examined: Examined) -> None:
    """Write the findings of a subject in place of earlier ones."""
    KEPT.mkdir(parents=True, exist_ok=True)
    file = KEPT / f"{examined.subject.name}.json"
    file.write_text(json.dumps({**asdict(examined), "subject": examined.subject.name}, indent=1))


def load_findings() -> list[Examined]:
    """Return the last findings of every subject that was ever examined."""
    files = {subject: KEPT / f"{subject.name}.json" for subject in all_subjects()}
    read = {subject: json.loads(file.read_bytes()) for subject, file in files.items() if file.exists()}
    return [
        Examined(subject, each["seeds"], each["cpu_s"], [_found_from(found) for found in each["found"]])
        for subject, each in read.items()
    ]


def page(examined: Sequence[Examined]) -> str:
    """Return the page for the docs."""
    healthy, faulty = (
        [each for each in examined if each.subject.is_faulty is is_faulty] for is_faulty in (False, True)
    )
    return "\n".join(
        [
            "# What the rules find",
            "",
            *_introduction(healthy, faulty),
            "",
            "## Healthy trainings",
            "",
            *_healthy(healthy),
            "",
            "## Faulty trainings",
            "",
            *_faulty(faulty),
            "",
            "## Other findings in faulty trainings",
            "",
            *_besides(faulty),
            "",
        ]
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Write the table of what rules find.")
    parser.add_argument("--seeds", type=int, default=5, help="How many runs of each healthy training.")
    parser.add_argument("--fault-seeds", type=int, default=2, help="How many runs of each fault.")
    parser.add_argument(
        "--only", nargs="*", help="The trainings and faults to run; the others keep their last results."
    )
    return parser


def _all_examined(subjects: Sequence[Subject], *, seeds: int, fault_seeds: int) -> Iterator[Examined]:
    workers = min(len(subjects), os.cpu_count() or 1)
    # One thread per process and as many processes as cores: these networks are too small for more threads.
    alone = partial(torch.set_num_threads, 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=alone) as pool:
        futures = [pool.submit(examine, each, fault_seeds if each.is_faulty else seeds) for each in subjects]
        for future in as_completed(futures):
            yield future.result()


def _record(subject: Subject, seed: int, folder: Path) -> None:
    rules = list(rules_for(subject).values())
    training = _training(subject)
    if isinstance(training, BoostedTraining):
        record_boosted(training, seed, folder=folder, rules=rules)
    elif subject.is_replicated:
        record_replicas([TRAININGS[subject.of], training], seed, folder=folder, rules=rules)
    else:
        record(training, seed, folder=folder, rules=rules)


def _training(subject: Subject) -> Runnable:
    if subject.name in FAULTS:
        return FAULTS[subject.name].twin
    if subject.name in BOOSTING_FAULTS:
        return BOOSTING_FAULTS[subject.name].twin
    return BOOSTED[subject.of] if subject.of in BOOSTED else TRAININGS[subject.of]


def _evaluate(subject: Subject, seed: int, folder: Path, *, other: Path | None) -> Iterator[Found]:
    trained = _training_steps(folder)
    rules = {name: rule for name, rule in rules_for(subject).items() if other or not rule.needs.other_runs}
    for evaluation in evaluate_rules(folder, rules, other=other):
        assert evaluation.status in (RuleStatus.ISSUES_FOUND, RuleStatus.NO_ISSUES_FOUND), evaluation.details
        assert evaluation.steps_dropped == 0, f"{evaluation.rule} did not evaluate every step of {subject.name}"
        if evaluation.status is RuleStatus.ISSUES_FOUND:
            yield _describe_finding(subject, seed, evaluation, trained=trained)


def _describe_finding(subject: Subject, seed: int, evaluation: Evaluation, *, trained: Sequence[int]) -> Found:
    rule, _, defaults = evaluation.rule.partition("/")
    first = evaluation.findings[0]
    step = int(np.searchsorted(trained, first.step, side="right")) - 1
    return Found(subject.name, seed, rule, Defaults(defaults), step, first.message)


def _training_steps(folder: Path) -> Sequence[int]:
    recording = ArrowRecording(FolderSource(folder))
    recording.refresh()
    index = next(iter(recording.workers.values())).index
    numbers = [int(number) for row, number in enumerate(index.numbers) if index.mode(row) in (Mode.TRAIN, Mode.GLOBAL)]
    return numbers


def _found_from(values: Mapping[str, Any]) -> Found:
    return Found(**{**values, "defaults": Defaults(values["defaults"])})


def _introduction(healthy: Sequence[Examined], faulty: Sequence[Examined]) -> Iterator[str]:
    runs = [sum(each.seeds for each in some) for some in (healthy, faulty)]
    minutes = sum(each.cpu_s for each in (*healthy, *faulty)) / 60
    yield "<!-- `make table` writes this page; change benchmarks/rule_table.py. -->"
    yield ""
    yield from textwrap.wrap(
        f"All rules were evaluated at every step of {runs[0]} runs of {len(healthy)} healthy trainings and of "
        f"{runs[1]} runs of {len(faulty)} faulty ones, recorded with the real hook. Each run has its own seed. "
        f"`make table` repeats this in {minutes:.0f} minutes of one core. The trainings are in "
        f"`trainyard.testing.trainings`.",
        120,
    )
    yield ""
    yield "Some rules need to know which tensors to read or how long to wait. They had these parameters:"
    yield ""
    everywhere = [(rule, parameters, "") for rule, parameters in GIVEN.items()]
    for_faults = [
        (rule, parameters, f", for {fault}") for fault, rules in GIVEN_FOR.items() for rule, parameters in rules.items()
    ]
    for rule, parameters, where in sorted(everywhere + for_faults, key=lambda each: each[0]):
        yield f"- {_link(rule)}: {', '.join(f'`{name}` as `{value}`' for name, value in parameters.items())}{where}"


def _healthy(examined: Sequence[Examined]) -> Iterator[str]:
    yield "The number of runs with a finding, which would be a false alarm, and the training step of the first. The"
    yield "page of each rule explains the alarms of AWS's defaults."
    yield ""
    yield "| rule | AWS's defaults | the first at | advised defaults |"
    yield "|---|---|---|---|"
    for rule in sorted(RULES):
        judging = [each for each in examined if (rule == ALONE) == each.subject.is_replicated]
        runs = sum(each.seeds for each in judging)
        aws, advised = (sum(len(each.by(rule, defaults)) for each in judging) for defaults in Defaults)
        alarming = [(each.subject.name, each.by(rule, Defaults.AWS)) for each in judging]
        firsts = [f"{name} {min(each.step for each in found)}" for name, found in alarming if found]
        if runs:
            yield f"| {_link(rule)} | {_alarm_share(aws, runs)} | {', '.join(firsts)} | {_alarm_share(advised, runs)} |"


def _alarm_share(alarms: int, runs: int) -> str:
    return f"{alarms} of {runs}" if alarms else "none"


def _faulty(examined: Sequence[Examined]) -> Iterator[str]:
    yield "For each fault, the rules that should find it, and the median training step at which they do."
    yield ""
    yield "| fault | training | what is wrong | from step | rule | AWS's defaults | advised defaults |"
    yield "|---|---|---|---|---|---|---|"
    for each in examined:
        subject = each.subject
        for number, rule in enumerate(subject.wanted):
            about = (subject.name, subject.of, subject.summary, str(subject.step)) if not number else ("", "", "", "")
            cells = [_first_detection(each, rule, defaults) for defaults in Defaults]
            yield f"| {' | '.join(about)} | {_link(rule)} | {' | '.join(cells)} |"


def _first_detection(examined: Examined, rule: str, defaults: Defaults) -> str:
    steps = [each.step for each in examined.by(rule, defaults)]
    if not steps:
        return "missed"
    early = sum(step < examined.subject.step for step in steps)
    count = "" if len(steps) == examined.seeds else f", in {len(steps)} of {examined.seeds}"
    too_early = f", in {early} before the fault" if early else ""
    return f"{median(steps):g}{count}{too_early}"


def _besides(examined: Sequence[Examined]) -> Iterator[str]:
    yield "With the advised defaults, and in how many runs. A fault often has more than one symptom."
    yield ""
    yield "| fault | runs | rules |"
    yield "|---|---|---|"
    for each in examined:
        others = [rule for rule in sorted(RULES) if rule not in each.subject.wanted]
        counts = {rule: len(each.by(rule, Defaults.ADVISED)) for rule in others}
        others_found = ", ".join(f"{_link(rule)} {count}" for rule, count in counts.items() if count)
        if others_found:
            yield f"| {each.subject.name} | {each.seeds} | {others_found} |"


def _link(rule: str) -> str:
    return f"[{rule}]({rule}.md)"


if __name__ == "__main__":
    main()
