"""`trainyard tensors`: show, compare and export the captured tensors of training jobs."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli.completion.values import complete_jobs
from trainyard.cli.debugger.rules import trial_of
from trainyard.cli.jobs.lookup import find_job, job_argument, open_api
from trainyard.cli.terminal.charts import bar, block
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    DefaultCommandGroup,
    json_option,
    result_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json
from trainyard.cli.terminal.tables import print_table
from trainyard.cli.terminal.word_choice import WordChoice

if TYPE_CHECKING:
    from trainyard.trial import Series, Trial

_CHART_ROWS = 20
_BAR_WIDTH = 40

mode_option = click.option(
    "--mode",
    type=WordChoice(["GLOBAL", "TRAIN", "EVAL", "PREDICT"]),
    default="GLOBAL",
    show_default=True,
    help="Mode of the steps.",
)


@click.group(
    cls=DefaultCommandGroup,
    default="show",
    examples=(
        "trainyard tensors @last                                   list the captured tensors",
        "trainyard tensors @last CrossEntropyLoss_output_0         draw a series",
        "trainyard tensors @last fc.weight --statistic mean_abs    a part of a name is enough",
        "trainyard tensors compare first second                    find where two runs diverge",
        "trainyard tensors export @last tensors.csv",
    ),
)
def tensors() -> None:
    """Show the captured tensors of a training job, compare two runs, and export tables for other tools."""


def _require_regex(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    try:
        re.compile(given or "")
    except (re.error, RecursionError, OverflowError) as error:
        raise click.BadParameter(f'"{given}" is not a regular expression: {error}.', ctx, param) from error
    return given


@tensors.command(
    cls=CommandWithExamples, examples=("trainyard tensors show @last", "trainyard tensors show @last --regex weight")
)
@job_argument
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--regex", callback=_require_regex, help="List only tensors whose names match.")
@click.option("--statistic", help="mean, std, min, max, l2 … Default: the value of a scalar, else mean_abs.")
@mode_option
@click.option("--worker", help="A rank, such as worker_1. Default: all ranks merged, or the first.")
@yard_option
@json_option
def show(
    job: str,
    name: str | None,
    regex: str | None,
    statistic: str | None,
    mode: str,
    worker: str | None,
    folder: Path | None,
    as_json: JsonFields | None,
) -> None:
    """List the tensors of JOB or, given the NAME of one, draw a statistic of it over the steps."""
    with open_api(folder) as api:
        description = find_job(api, job)
        trial = trial_of(api, description)
        if name is None:
            _print_tensors(trial, regex, as_json=as_json)
            return
        found = _match_tensor(trial, name)
        word = statistic or ("value" if trial.tensors()[found].size == 1 else "mean_abs")
        series = trial.series(found, word, mode=_mode(mode), worker=worker)
    if as_json:
        values = [None if math.isnan(value) else float(value) for value in series.values]
        document = {"Tensor": found, "Statistic": word, "Steps": series.steps.tolist(), "Values": values}
        print_json(document, as_json)
        return
    click.echo(f"{word} of {found} at {len(series.steps)} steps")
    for line in chart_lines(series, filled=block()):
        click.echo(line)


@tensors.command(
    cls=CommandWithExamples,
    examples=("trainyard tensors compare mnist-1 mnist-2", "trainyard tensors compare mnist-1 mnist-2 --rtol 1e-5"),
)
@click.argument("first", metavar="JOB", shell_complete=complete_jobs)
@click.argument("second", metavar="JOB", shell_complete=complete_jobs)
@click.option("--rtol", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Relative tolerance.")
@yard_option
@json_option
def compare(first: str, second: str, rtol: float, folder: Path | None, as_json: JsonFields | None) -> int:
    """Find the first step and the first tensor in which two runs differ. Exit code 1 if they differ."""
    from trainyard.trial import compare as compare_trials

    with open_api(folder) as api:
        found = compare_trials(trial_of(api, find_job(api, first)), trial_of(api, find_job(api, second)), rtol=rtol)
    if as_json:
        print_json(pascal_case_keys(_comparison_shape(found)), as_json)
    elif found.first is None:
        click.echo(f"The runs are the same in the {found.steps} steps and {found.tensors} tensors that both have.")
    else:
        click.echo(str(found.first))
        click.echo(f"In that step {len(found.differing)} of {found.tensors} tensors differ: {_some(found.differing)}")
    for title, names in (("first", found.only_left), ("second", found.only_right)) if not as_json else ():
        if names:
            click.echo(f"Only the {title} has {_some(names)}")
    return ExitCode.OK if found.first is None else ExitCode.FAILED


@tensors.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard tensors export @last tensors.csv",
        "trainyard tensors export @last weights.parquet --regex weight     needs trainyard[arrow]",
    ),
)
@job_argument
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--regex", callback=_require_regex, help="Only tensors whose names match.")
@click.option("--worker", help="A rank, such as worker_1. Default: the first.")
@yard_option
@result_option("File", "Rows")
def export(
    job: str, target: Path, regex: str | None, worker: str | None, folder: Path | None, as_json: JsonFields | None
) -> None:
    """Write the statistics of the tensors of JOB to FILE, as CSV or Parquet depending on its suffix."""
    if target.suffix not in (".csv", ".parquet"):
        raise click.UsageError(f"{target} must have the suffix .csv or .parquet.")
    with open_api(folder) as api:
        table = trial_of(api, find_job(api, job)).table(regex=regex, worker=worker)
    rows = table.write_parquet(target) if target.suffix == ".parquet" else table.write_csv(target)
    if as_json:
        print_json({"File": str(target), "Rows": rows}, as_json)
    else:
        say(f"Wrote {rows} rows to {target}.")


def chart_lines(series: "Series", *, filled: str) -> Iterator[str]:
    """Yield a bar for each of up to 20 evenly spaced steps, then the lowest and the highest value of all steps."""
    if not len(series.steps):
        return
    finite = [float(value) for value in series.values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    width = len(str(series.steps[-1]))
    for index in _spaced_indexes(len(series.steps)):
        value = float(series.values[index])
        part = (value - low) / (high - low) if math.isfinite(value) and high > low else 0.0
        yield f"{series.steps[index]:>{width}}  {value:>12.6g}  {bar(part, _BAR_WIDTH, filled=filled)}".rstrip(" ·.")
    yield f"lowest {low:.6g}, highest {high:.6g}" + (
        f", {len(series.values) - len(finite)} not finite" if len(finite) < len(series.values) else ""
    )


def _spaced_indexes(count: int) -> list[int]:
    if count <= _CHART_ROWS:
        return list(range(count))
    return [round(number * (count - 1) / (_CHART_ROWS - 1)) for number in range(_CHART_ROWS)]


def _print_tensors(trial: "Trial", regex: str | None, *, as_json: JsonFields | None) -> None:
    known = trial.tensors()
    names = [name for name in known if regex is None or re.search(regex, name)]
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "kind": str(known[name].kind),
            "shape": list(known[name].shape),
            "dtype": known[name].dtype,
            "collections": list(known[name].collections),
        }
        for name in names
    ]
    steps = trial.steps(known=True)
    if as_json:
        saved = trial.steps()
        document = {"tensors": rows, "steps": len(steps), "saved_steps": saved, "workers": trial.workers()}
        print_json(pascal_case_keys(document), as_json, items="Tensors")
        return
    cells = [
        (
            name,
            str(known[name].kind),
            "x".join(map(str, known[name].shape)) or "scalar",
            ", ".join(known[name].collections),
        )
        for name in names
    ]
    print_table(("tensor", "kind", "shape", "collections"), cells)
    last = f" up to {steps[-1]}" if steps else ""
    workers = len(trial.workers())
    say(f"{len(rows)} tensors, {len(steps)} steps{last}, {workers} {'worker' if workers == 1 else 'workers'}")


def _match_tensor(trial: "Trial", name: str) -> str:
    names = list(trial.tensors())
    if name in names:
        return name
    found = [each for each in names if name in each]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failure(f'There is no tensor "{name}".', next_step="trainyard tensors JOB", code=ExitCode.NOT_FOUND)
    raise Failure(f'Several tensors have names with "{name}".', why=_some(found), code=ExitCode.USAGE)


def _mode(word: str) -> Any:
    from trainyard.trial import Mode

    return Mode(word.upper())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _comparison_shape(found: Any) -> dict[str, Any]:
    first = found.first
    return {
        "same": first is None,
        "steps": found.steps,
        "tensors": found.tensors,
        "first": None
        if first is None
        else {
            "step": first.step,
            "mode": str(first.mode),
            "worker": first.worker,
            "tensor": first.tensor,
            "statistic": first.statistic,
            "values": [first.left, first.right],
        },
        "differing": list(found.differing),
        "only_first": list(found.only_left),
        "only_second": list(found.only_right),
    }
