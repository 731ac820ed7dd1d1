"""`trainyard advise`: what to change in a training job, and what that gains."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.advice_trials.trial_jobs import FOLDER, find_trial_jobs, remove_trial_job
from trainyard._sdk.advice_trials.verification import (
    DEFAULT_ROUNDS,
    DEFAULT_TRIAL_S,
    MeasuredSpeedup,
    TrialPlan,
    Verification,
    VerifiedChange,
    changes_text,
    verify_changes,
)
from trainyard._sdk.connection import Api
from trainyard._sdk.profiling.conclusion import ProfileAdvice, ProfileVerdict, describe_profile, verdict_of
from trainyard._sdk.training.stream import Description
from trainyard.cli.jobs.lookup import find_access, find_job, job_argument, translate_failures
from trainyard.cli.profiling.profile_text import advice_lines, verdict_blocks
from trainyard.cli.terminal.blocks import Block, Table, Title, print_blocks
from trainyard.cli.terminal.console import CommandWithExamples, json_option, say, yard_option
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json
from trainyard.cli.terminal.tables import Column
from trainyard.foundation.plain import to_plain
from trainyard.session import Session

_MAX_TRIED = 4


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard advise @last                          the bottleneck, and what to change",
        "trainyard advise @last --verify                 try the changes in short runs, and measure the gain",
        "trainyard advise @last --verify --rounds 8      with a narrower interval",
        "trainyard advise @last --clean                  remove the jobs of earlier trials",
    ),
)
@job_argument
@click.option("--verify", is_flag=True, help="Try the advice that needs no change of the code, in short trial jobs.")
@click.option(
    "--rounds",
    metavar="N",
    type=click.IntRange(min=2, max=16),
    default=DEFAULT_ROUNDS,
    show_default=True,
    help="How often each change, and the unchanged program, is tried.",
)
@click.option(
    "--trial-seconds",
    "trial_s",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=DEFAULT_TRIAL_S,
    show_default=True,
    help="About how long each trial trains.",
)
@click.option("--rm", "removes", is_flag=True, help="At the end, remove the trial jobs and their files.")
@click.option("--clean", is_flag=True, help="Try nothing; remove the jobs of earlier trials and their files.")
@yard_option
@json_option
def advise(
    job: str,
    verify: bool,
    rounds: int,
    trial_s: float,
    removes: bool,
    clean: bool,
    folder: Path | None,
    as_json: JsonFields | None,
) -> int:
    """Show what limits a training job, and what to change.

    With --verify, the first steps of JOB run again as trial jobs, in turn unchanged and with each change that can be
    made from outside: data workers, batch size, threads, precision and the like. The result is the measured gain with
    its 95 % interval. JOB, its checkpoints and its data stay unchanged. Exit codes: 0, or 7 if there is too little data
    for a verdict.
    """
    access = find_access(folder)
    client = access.client()
    try:
        with translate_failures():
            found = find_job(client, job)
            if clean:
                _clean(client, found["TrainingJobName"])
                return ExitCode.OK
            verdict = verdict_of(describe_profile(client, found["TrainingJobName"]))
            tried = Verification((), ())
            if verify:
                bucket = Session(api=client, region=access.region).default_bucket()
                plan = TrialPlan.of(verdict.costs.step_s, rounds=rounds, trial_s=trial_s)
                tried = _verify(client, found, verdict.advice, bucket=bucket, plan=plan)
                for name in tried.jobs if removes else ():
                    remove_trial_job(client, bucket, name)
    finally:
        client.close()
    if as_json:
        print_json(advice_shape(verdict, tried), as_json)
    else:
        print_blocks(_blocks(verdict, tried, is_verified=verify))
        if not verify and any(each.changes for each in verdict.advice):
            say(f"\nTo measure the gain: trainyard advise {found['TrainingJobName']} --verify")
    return ExitCode.OK if verdict.bottleneck is not None else ExitCode.UNDECIDED


def advice_shape(verdict: ProfileVerdict, tried: Verification) -> dict[str, Any]:
    """Return the verdict and what was tried as `--json` prints them."""
    results = [_verified_shape(each) for each in tried.results]
    shape: dict[str, Any] = pascal_case_keys({"summary": verdict.summary, **to_plain(verdict)})
    return {**shape, "Verified": results, "Jobs": list(tried.jobs)}


def _verify(
    api: Api, description: Description, advice: Sequence[ProfileAdvice], *, bucket: str, plan: TrialPlan
) -> Verification:
    candidates = [dict(each.changes) for each in advice if each.changes][:_MAX_TRIED]
    if not candidates:
        raise Failure(
            "There is nothing to try: none of the advice can be followed without a change of the code.",
            next_step=f"trainyard advise {description['TrainingJobName']}",
            code=ExitCode.UNDECIDED,
        )
    return verify_changes(api, description, candidates, bucket=bucket, plan=plan, report=say)


def _blocks(verdict: ProfileVerdict, tried: Verification, *, is_verified: bool) -> list[Block]:
    blocks = list(verdict_blocks(verdict))
    for number, advice in enumerate(verdict.advice, 1):
        blocks += ["", *advice_lines(number, advice)]
    if is_verified:
        rows = [_verified_row(each) for each in tried.results]
        numbers = [Column(title, align="right") for title in ("speed", "95 % interval")]
        blocks += ["", Title("Measured"), Table(["change", *numbers, "result"], rows)]
    return blocks


def _verified_row(result: VerifiedChange) -> tuple[str, ...]:
    what, speedup = changes_text(result.changes), result.speedup
    if speedup is None:
        return what, "", "", f"not measured: {result.problem}"
    interval = f"{speedup.low:.2f}x to {speedup.high:.2f}x" if math.isfinite(speedup.high) else ""
    return what, f"{speedup.factor:.2f}x", interval, _judgement(speedup, is_per_sample=result.is_per_sample)


def _judgement(speedup: MeasuredSpeedup, *, is_per_sample: bool) -> str:
    per = "per sample" if is_per_sample else "per step"
    if speedup.is_faster:
        return f"faster {per}"
    return f"slower {per}" if speedup.is_slower else "no difference that can be told from noise"


def _verified_shape(result: VerifiedChange) -> dict[str, Any]:
    speedup = result.speedup
    measured = None
    if speedup is not None:
        limits = [limit if math.isfinite(limit) else None for limit in (speedup.low, speedup.high)]
        measured = {"Factor": speedup.factor, "Low": limits[0], "High": limits[1], "Pairs": speedup.pairs}
    return {
        "Changes": {change.value: value for change, value in result.changes.items()},
        "Speedup": measured,
        "PerSample": result.is_per_sample,
        "Problem": result.problem,
    }


def _clean(api: Api, name: str) -> None:
    count = 0
    for bucket, trial in list(find_trial_jobs(api, name)):
        remove_trial_job(api, bucket, trial)
        count += 1
    say(f"Removed {count} trial {'job' if count == 1 else 'jobs'} of {name}, with their files under {FOLDER}/.")
