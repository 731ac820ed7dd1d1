"""`trainyard tune SCRIPT`: tune the hyperparameters of a script."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.training.request import require_consistent
from trainyard._sdk.tuning.configs import (
    HyperbandStrategyConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    WarmStartTypes,
)
from trainyard._sdk.tuning.job import TuningJobHandle
from trainyard.cli.completion.values import complete_rules, complete_studies
from trainyard.cli.jobs.lookup import find_access, translate_failures
from trainyard.cli.run.arguments import HYPERPARAMETERS
from trainyard.cli.run.plan import plan_lines
from trainyard.cli.run.script import (
    ScriptOptions,
    estimator_of,
    inputs_of,
    quote_of,
    require_accepted,
    require_usable_options,
    script_options,
    upload_inputs,
)
from trainyard.cli.terminal.console import (
    result_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.failure import ExitCode
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.tuning.arguments import TuneCommand, metrics_of, ranges_of, resource_of
from trainyard.cli.tuning.studies import find_study
from trainyard.cli.tuning.watch import watch_study
from trainyard.estimator import Framework
from trainyard.parameter import CategoricalParameter, NumericParameter, ParameterRange
from trainyard.session import Session
from trainyard.tuner import HyperparameterTuner

STRATEGIES = {"bayesian": "Bayesian", "random": "Random", "hyperband": "Hyperband", "grid": "Grid"}
STOPPINGS = {"off": "Off", "median": "Auto", "curve": "Curve"}
DEFAULT_TRIALS = 20


@dataclass(frozen=True, slots=True)
class TuneOptions(ScriptOptions):
    """The options of `trainyard tune`, named after the flags."""

    spec: Path | None
    range: tuple[str, ...]
    choice: tuple[str, ...]
    objective: str | None
    maximize: bool | None
    metric: tuple[str, ...]
    trials: int | None
    parallel: int
    strategy: str
    resource: str | None
    early_stopping: str
    prune_on: tuple[str, ...]
    warm_start: tuple[str, ...]
    transfer: bool
    target: float | None
    patience: int | None
    until_converged: bool
    max_mins: int | None
    seed: int | None
    autotune: bool
    name: str | None
    detach: bool
    as_json: JsonFields | None


@click.command(
    cls=TuneCommand,
    short_help="Start a tuning job.",
    examples=(
        "trainyard tune train.py --range lr=log:1e-5..1e-1 --range layers=1..8 --choice opt=adam,sgd \\",
        "    --objective val_accuracy --maximize --trials 50 --parallel 2 --early-stopping curve",
        "trainyard tune train.py --range lr=0.1..0.5 --objective loss --minimize --metric 'loss=Loss is ([0-9.]+)'",
        "trainyard tune train.py --range lr=0.1..0.5 --objective loss --minimize --warm-start PARENT -- --epochs 3",
        "trainyard tune train.py --spec study.toml                  the same options from a file",
    ),
)
@script_options
@click.option(
    "--spec",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with further options by name; range, choice and metric can be tables.",
)
@click.option(
    "--range",
    metavar="NAME=LOW..HIGH",
    multiple=True,
    help="A number to tune; an integer if both bounds are. LOW can start with log:, reverse-log: or linear:.",
)
@click.option("--choice", metavar="NAME=A,B,...", multiple=True, help="A hyperparameter to tune, with its values.")
@click.option("--objective", metavar="METRIC", help="The metric to optimize.")
@click.option("--maximize/--minimize", default=None, help="Whether a higher or a lower value is better.")
@click.option(
    "--metric",
    metavar="NAME=REGEX",
    multiple=True,
    help="How to read a metric from the log. Default for the objective: NAME: VALUE or NAME=VALUE.",
)
@click.option(
    "--trials",
    metavar="N",
    type=click.IntRange(1),
    help=f"Number of training jobs. Default: {DEFAULT_TRIALS}, or no limit if there is another limit.",
)
@click.option(
    "--parallel",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many training jobs run at the same time.",
)
@click.option("--strategy", type=click.Choice(list(STRATEGIES)), default="bayesian", show_default=True)
@click.option(
    "--resource",
    metavar="LEAST..MOST",
    help="With hyperband: the fewest and the most reports of the objective per trial, such as epochs.",
)
@click.option(
    "--early-stopping",
    type=click.Choice(list(STOPPINGS)),
    default="off",
    show_default=True,
    help="Which trials to stop early: those worse than the median, or those with hopeless learning curves.",
)
@click.option(
    "--prune-on",
    metavar="RULE",
    multiple=True,
    shell_complete=complete_rules,
    help="A debugger rule that stops a trial when it finds an issue.",
)
@click.option(
    "--warm-start",
    metavar="STUDY",
    multiple=True,
    shell_complete=complete_studies,
    help="An ended study to learn from. Can be given several times.",
)
@click.option("--transfer", is_flag=True, help="With --warm-start: the data or the script has changed.")
@click.option("--target", metavar="VALUE", type=float, help="Stop the study when the objective reaches this value.")
@click.option(
    "--patience", metavar="N", type=click.IntRange(3), help="Stop the study after N trials without a better one."
)
@click.option("--until-converged", is_flag=True, help="Stop the study when no better trial is expected.")
@click.option("--max-mins", metavar="N", type=click.IntRange(2), help="Time limit of the whole study in minutes.")
@click.option("--seed", metavar="N", type=click.IntRange(0), help="Seed of the search, to repeat it.")
@click.option("--autotune", is_flag=True, help="Choose ranges for the hyperparameters after --, and other settings.")
@click.option("--name", metavar="NAME", help="Name of the study, up to 32 characters. Default: SCRIPT and the time.")
@click.option("-d", "--detach", is_flag=True, help="Print the name of the study and return at once.")
@yard_option
@result_option("HyperParameterTuningJobName", "HyperParameterTuningJobStatus", "BestTrainingJobName")
@click.pass_context
def start(ctx: click.Context, /, folder: Path | None, **given: Any) -> int:
    """Search for the best hyperparameters of SCRIPT. Each trial is a training job.

    Words after -- are hyperparameters with fixed values. Ctrl-C leaves the study running.
    """
    options = TuneOptions(**given)
    _require_consistent_options(options)
    require_usable_options(options, folder)
    access = find_access(folder, starts=True)
    client = access.client()
    try:
        with translate_failures():
            session = Session(api=client, region=access.region, default_bucket=options.bucket_name)
            return _start(session, options, ctx.meta[HYPERPARAMETERS])
    finally:
        client.close()


def _start(session: Session, options: TuneOptions, hyperparameters: Mapping[str, Any]) -> int:
    estimator = estimator_of(session, options, hyperparameters)
    tuner, inputs = tuner_of(estimator, options, session.api), inputs_of(options)
    # Check the options before any data is uploaded.
    require_consistent(estimator, None)
    quote = quote_of(session.api, estimator)
    require_accepted(session.api, estimator, inputs, quote)
    say("Each trial:")
    for line in plan_lines(estimator, inputs, hyperparameters=hyperparameters, quote=quote, shows_price=options.prices):
        say(line)
    say("The study:")
    for line in _study_plan(tuner, options):
        say(line)
    with session.input_uploads() as uploads:
        tuner.fit(upload_inputs(uploads, inputs), job_name=options.name, wait=False)
    job = tuner.latest_tuning_job
    assert job is not None, "fit creates a tuning job"
    if options.detach:
        _print_result(job, options.as_json)
        return ExitCode.OK
    say(f'Tuning job "{job.name}"')
    code = watch_study(job, shows_trials=not options.as_json)
    if options.as_json:
        _print_result(job, options.as_json)
    return code


def _print_result(job: TuningJobHandle, as_json: JsonFields | None) -> None:
    """Print the name of the tuning job or, with --json, what it has come to so far."""
    if as_json is None:
        click.echo(job.name)
        return
    found = job.describe()
    members = ("HyperParameterTuningJobName", "HyperParameterTuningJobStatus")
    best = found.get("BestTrainingJob", {}).get("TrainingJobName")
    print_json({**{name: found[name] for name in members}, "BestTrainingJobName": best}, as_json)


def tuner_of(estimator: Framework, options: TuneOptions, api: Api) -> HyperparameterTuner:
    """Return the tuner for the options."""
    assert options.objective, "the options were checked"
    return HyperparameterTuner(
        estimator,
        options.objective,
        ranges_of(options.range, options.choice),
        metrics_of(options.metric, options.md, objective=options.objective),
        STRATEGIES[options.strategy],
        "Maximize" if options.maximize else "Minimize",
        max_jobs=_max_trials(options),
        max_parallel_jobs=options.parallel,
        max_runtime_in_seconds=options.max_mins * 60 if options.max_mins else None,
        base_tuning_job_name=estimator.base_job_name,
        warm_start_config=_warm_start(options, api),
        strategy_config=_resources(options),
        completion_criteria_config=_completion(options),
        early_stopping_type=STOPPINGS[options.early_stopping],
        random_seed=options.seed,
        autotune=options.autotune,
        prune_on=options.prune_on,
    )


def _require_consistent_options(options: TuneOptions) -> None:
    if not options.objective:
        raise click.UsageError("The metric to optimize is missing; name it with --objective.")
    if options.maximize is None:
        raise click.UsageError(f"The direction is missing; give --maximize or --minimize for {options.objective}.")
    if not options.range and not options.choice and not options.autotune:
        raise click.UsageError("There is nothing to tune; give a --range or a --choice, or --autotune.")
    if options.keep_alive:
        raise click.UsageError("Trials share warm workers anyway; leave --keep-alive out.")
    if options.transfer and not options.warm_start:
        raise click.UsageError("--transfer needs --warm-start, the studies to learn from.")
    if options.resource and options.strategy != "hyperband":
        raise click.UsageError("--resource is only for --strategy hyperband; leave one of them out.")


def _max_trials(options: TuneOptions) -> int | None:
    has_other_limit = options.strategy == "grid" or options.max_mins or options.until_converged or options.patience
    return options.trials or (None if has_other_limit else DEFAULT_TRIALS)


def _warm_start(options: TuneOptions, api: Api) -> WarmStartConfig | None:
    if not options.warm_start:
        return None
    parents = {find_study(api, given).name for given in options.warm_start}
    kind = WarmStartTypes.TRANSFER_LEARNING if options.transfer else WarmStartTypes.IDENTICAL_DATA_AND_ALGORITHM
    return WarmStartConfig(kind, parents)


def _resources(options: TuneOptions) -> StrategyConfig | None:
    if not options.resource:
        return None
    resource = resource_of(options.resource)
    return StrategyConfig(HyperbandStrategyConfig(max_resource=resource.most, min_resource=resource.least))


def _completion(options: TuneOptions) -> TuningJobCompletionCriteriaConfig | None:
    if options.target is None and options.patience is None and not options.until_converged:
        return None
    return TuningJobCompletionCriteriaConfig(options.patience, options.until_converged or None, options.target)


def _study_plan(tuner: HyperparameterTuner, options: TuneOptions) -> Iterator[str]:
    """Yield the plan of a study, one property per line."""
    direction = "maximize" if options.maximize else "minimize"
    yield f"  {'objective':<12}{direction} {options.objective}"
    for definition in tuner.metric_definitions or ():
        yield f"  {'metric':<12}{definition['Name']} = {definition['Regex']}"
    for name, each in ranges_of(options.range, options.choice).items():
        yield f"  {'tuned':<12}{name} {_range_text(each)}"
    trials = f"{tuner.max_jobs} trials" if tuner.max_jobs else "trials until another limit is reached"
    stopping = "" if options.early_stopping == "off" else f", early stopping by {options.early_stopping}"
    yield f"  {'search':<12}{options.strategy}, {trials}, {options.parallel} at a time{stopping}"
    if tuner.warm_start_config:
        yield f"  {'learns from':<12}{', '.join(sorted(tuner.warm_start_config.parents))}"


def _range_text(given: ParameterRange) -> str:
    if isinstance(given, CategoricalParameter):
        return f"one of {', '.join(given.values)}"
    assert isinstance(given, NumericParameter), "every other range is numeric"
    scaling = "" if given.scaling_type == "Auto" else f", {given.scaling_type}"
    return f"{given.min_value} to {given.max_value} ({given.kind}{scaling})"
