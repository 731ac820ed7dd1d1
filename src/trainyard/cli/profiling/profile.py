"""`trainyard profile`: where the time of a training job goes, and profiles of some of its steps."""

import time
from pathlib import Path, PurePosixPath
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.profiling.conclusion import JobConclusion, describe_profile
from trainyard._sdk.storage.transfers import ListedObject, download_object, list_objects
from trainyard._sdk.training.stream import FINAL
from trainyard.cli.jobs.lookup import find_job, job_argument, open_api, to_json
from trainyard.cli.profiling.profile_text import profile_blocks
from trainyard.cli.terminal.blocks import print_blocks
from trainyard.cli.terminal.console import CommandWithExamples, json_option, say, size_text, yard_option
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json
from trainyard.cli.terminal.progress import spinner
from trainyard.foundation.locations import Location, parse_s3_uri

_TRACES = (".pt.trace.json.gz", ".trace.json.gz", ".pt.trace.json", ".trace.json")
_POLL_S = 0.5


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard profile @last                       where the time goes, so far or in the end",
        "trainyard profile @last --steps 5             profile the next 5 steps of a running job in detail",
        "trainyard profile @last --steps 5 -o traces/  and download the traces",
        "trainyard profile @last --report report.html  download the report",
        "trainyard profile @last --json Verdict",
    ),
)
@job_argument
@click.option(
    "--steps", metavar="N", type=click.IntRange(min=1, max=1000), help="Profile the next N steps of a running job."
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Download the traces that --steps makes into this folder.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="How long --steps waits for the traces.",
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Download the report of the profiler to this file.",
)
@yard_option
@json_option
def profile(
    job: str,
    steps: int | None,
    output: Path | None,
    timeout_s: float,
    report: Path | None,
    folder: Path | None,
    as_json: JsonFields | None,
) -> int:
    """Show where the time of a training job goes: its bottleneck, the phases of its steps, the hardware, the rules.

    With --steps, a running job records a detailed profile of its next steps, which costs time only in these steps. The
    traces are stored with the job; TensorBoard, Perfetto and the report show them. Exit code 7 if none came in time.
    """
    if output is not None and steps is None:
        raise click.UsageError("--output is for the traces that --steps makes; give both.")
    with open_api(folder) as api:
        name = str(find_job(api, job)["TrainingJobName"])
        if steps is not None:
            return _profile_steps(api, name, steps, output=output, timeout_s=timeout_s, as_json=as_json)
        found = describe_profile(api, name)
        if report is not None:
            _download_report(api, found, report)
            return ExitCode.OK
    if as_json:
        print_json(profile_shape(found), as_json)
    else:
        print_blocks(list(profile_blocks(found)))
        say(f"\nWhat to change: trainyard advise {name}")
    return ExitCode.OK


def profile_shape(found: JobConclusion) -> dict[str, Any]:
    """Return a profile as `--json` prints it, with the verdict in the spelling of `trainyard advise`."""
    shape: dict[str, Any] = to_json({**found, "Verdict": pascal_case_keys(found["Verdict"])})
    return shape


def _profile_steps(
    api: Api, name: str, steps: int, *, output: Path | None, timeout_s: float, as_json: JsonFields | None
) -> int:
    # Listed before the request, so that a quick program cannot be missed.
    known = {each.key for each in _traces(api, describe_profile(api, name)["ProfilerOutput"])}
    where = api.call("trainyard", "ProfileJob", TrainingJobName=name, Steps=steps)["ProfilerOutput"]
    with spinner(f"Waiting for a profile of {steps} {'step' if steps == 1 else 'steps'}"):
        found = _wait_for_traces(api, name, where, known=known, timeout_s=timeout_s)
    bucket = _location(where).bucket.name
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for each in found:
            download_object(api, output / _file_name(each.key), bucket=bucket, key=each.key)
    if as_json:
        listed = [{"S3Uri": f"s3://{bucket}/{each.key}", "SizeBytes": each.size} for each in found]
        print_json({"TrainingJobName": name, "Traces": listed}, as_json)
    else:
        for each in found:
            place = output / _file_name(each.key) if output is not None else f"s3://{bucket}/{each.key}"
            click.echo(f"{place}  {size_text(each.size)}")
    return ExitCode.OK


def _wait_for_traces(api: Api, name: str, where: str, *, known: set[str], timeout_s: float) -> list[ListedObject]:
    """Wait until there are new traces, and no more of them come; every rank writes one."""
    deadline = time.monotonic() + timeout_s
    seen: list[ListedObject] = []
    while True:
        is_over = api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=name)["TrainingJobStatus"] in FINAL
        found = [each for each in _traces(api, where) if each.key not in known]
        if found and (is_over or found == seen):
            return found
        if is_over or time.monotonic() >= deadline:
            raise Failure(
                f"No profile of {name} came" + (": the job has ended." if is_over else f" within {timeout_s:g} s."),
                why="The program must train with PyTorch, and take more steps than were asked for.",
                next_step=f"trainyard profile {name}",
                code=ExitCode.UNDECIDED,
            )
        seen = found
        time.sleep(_POLL_S)


def _traces(api: Api, where: str) -> list[ListedObject]:
    place = _location(where)
    found = list_objects(api, place.bucket.name, f"{place.key.rstrip('/')}/")
    return [each for each in found if each.key.endswith(_TRACES)]


def _location(uri: str) -> Location:
    return parse_s3_uri(uri, account="")


def _file_name(key: str) -> str:
    """Return the last names of a key as one file name: the folder of a trace says which step it is of."""
    return "_".join(PurePosixPath(key).parts[-2:])


def _download_report(api: Api, profile: JobConclusion, path: Path) -> None:
    """Download the report that a rule of the job has stored, or else have one written now."""
    if profile["Report"]:
        where = _location(profile["Report"])
        download_object(api, path, bucket=where.bucket.name, key=where.key)
    else:
        with (
            spinner("Writing the report"),
            api.stream("trainyard", "ReadProfilerReport", TrainingJobName=profile["TrainingJobName"]) as lines,
        ):
            path.write_bytes(b"".join(line + b"\n" for line in lines))
    say(f"Wrote {path}, as of {profile['EvaluatedAt']:%Y-%m-%d %H:%M:%S}.")
