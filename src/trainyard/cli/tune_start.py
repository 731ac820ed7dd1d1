"""`trainyard tune SCRIPT`: start a study of a script, and watch it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import home_option, say
from trainyard.cli.failure import ExitCode
from trainyard.cli.jobs import failures, find_access
from trainyard.cli.plan import plan_lines
from trainyard.cli.run_arguments import HYPERPARAMETERS
from trainyard.cli.script import (
    ScriptOptions,
    estimator_of,
    inputs_of,
    quote_of,
    require_sense,
    script_options,
    upload_inputs,
)
from trainyard.cli.studies import find_study
from trainyard.cli.tune_arguments import TuneCommand, metrics_of, ranges_of, resource_of
from trainyard.cli.tune_watching import watch_study
from trainyard.connection import Api
from trainyard.distribution import launcher_hyperparameters
from trainyard.estimator import Framework
from trainyard.parameter import CategoricalParameter, NumericParameter, ParameterRange
from trainyard.session import Session
from trainyard.training_request import require_consistent
from trainyard.tuner import HyperparameterTuner
from trainyard.tuning_configs import (
    HyperbandStrategyConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    WarmStartTypes,
)

STRATEGIES = {"bayesian": "Bayesian", "random": "Random", "hyperband": "Hyperband", "grid": "Grid"}
STOPPINGS = {"off": "Off", "median": "Auto", "curve": "Curve"}
TRIALS = 20


@dataclass(frozen=True, slots=True)
class TuneOptions(ScriptOptions):
    """What was asked of `trainyard tune`, by the names of the flags."""

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


@click.command(
    cls=TuneCommand,
    short_help="Start a study of a script.",
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
    help="TOML file with options that are not given here, by their names; range, choice and metric may be tables.",
)
@click.option(
    "--range",
    metavar="NAME=LOW..HIGH",
    multiple=True,
    help="A number to tune, whole if both ends are; before LOW may be log:, reverse-log: or linear:.",
)
@click.option("--choice", metavar="NAME=A,B,...", multiple=True, help="A hyperparameter to tune that is one of these.")
@click.option("--objective", metavar="METRIC", help="The metric that says how good a trial is.")
@click.option("--maximize/--minimize", default=None, help="Whether more of it is better, or less.")
@click.option(
    "--metric",
    metavar="NAME=REGEX",
    multiple=True,
    help="How a metric is read from what the script writes. Default for the objective: NAME: VALUE or NAME=VALUE.",
)
@click.option(
    "--trials",
    metavar="N",
    type=click.IntRange(1),
    help=f"How many training jobs to make. Default: {TRIALS}, or without end where another limit is given.",
)
@click.option(
    "--parallel", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="How many of them at a time."
)
@click.option("--strategy", type=click.Choice(list(STRATEGIES)), default="bayesian", show_default=True)
@click.option(
    "--resource",
    metavar="LEAST..MOST",
    help="With hyperband: how many reports of the objective, such as epochs, a trial may have.",
)
@click.option(
    "--early-stopping",
    type=click.Choice(list(STOPPINGS)),
    default="off",
    show_default=True,
    help="Which trials to end early: those worse than the median, or those whose learning curves lead nowhere.",
)
@click.option(
    "--prune-on", metavar="RULE", multiple=True, help="A rule of the debugger that ends a trial it finds fault with."
)
@click.option(
    "--warm-start", metavar="STUDY", multiple=True, help="An ended study to learn from. May be given several times."
)
@click.option("--transfer", is_flag=True, help="With --warm-start: the data or the script is not the same.")
@click.option("--target", metavar="VALUE", type=float, help="End the study when the objective has reached this.")
@click.option(
    "--patience", metavar="N", type=click.IntRange(3), help="End it after so many trials without a better one."
)
@click.option("--until-converged", is_flag=True, help="End it when no better one is to be expected.")
@click.option("--max-mins", metavar="N", type=click.IntRange(2), help="Time limit of the whole study in minutes.")
@click.option("--seed", metavar="N", type=click.IntRange(0), help="Seed of the search, so that it can be repeated.")
@click.option("--autotune", is_flag=True, help="Let the yard choose ranges for the words after --, and other settings.")
@click.option("--name", metavar="NAME", help="Name of the study, 32 characters at most. Default: SCRIPT and the time.")
@click.option("--detach", is_flag=True, help="Print the study's name and return at once.")
@home_option
@click.pass_context
def start(ctx: click.Context, /, folder: Path | None, **given: Any) -> int:
    """Search the hyperparameters with which SCRIPT does best; each trial is a training job.

    Words after -- are hyperparameters that stay as they are. Ctrl-C leaves the study running.
    """
    options = TuneOptions(**given)
    access = find_access(folder, starts=True)
    client = access.client()
    try:
        with failures():
            session = Session(api=client, region=access.region, default_bucket=options.bucket_name)
            return _start(session, options, ctx.meta[HYPERPARAMETERS])
    finally:
        client.close()


def _start(session: Session, options: TuneOptions, hyperparameters: Mapping[str, Any]) -> int:
    _require_sense(options)
    estimator = estimator_of(session, options, hyperparameters)
    tuner, inputs = tuner_of(estimator, options, session.api), inputs_of(options)
    require_consistent(estimator, None)  # before data is brought for it
    launcher_hyperparameters(estimator.distribution, estimator.instance_type, groups=estimator.instance_groups or ())
    quote = quote_of(session.api, estimator)
    say("Each trial:")
    for line in plan_lines(estimator, inputs, hyperparameters=hyperparameters, quote=quote):
        say(line)
    say("The study:")
    for line in _study_plan(tuner, options):
        say(line)
    with session.input_uploads() as uploads:
        tuner.fit(upload_inputs(uploads, inputs), job_name=options.name, wait=False)
    job = tuner.latest_tuning_job
    assert job is not None, "fit makes a tuning job"
    if options.detach:
        click.echo(job.name)
        return ExitCode.OK
    say(f'Tuning job "{job.name}"')
    return watch_study(job)


def tuner_of(estimator: Framework, options: TuneOptions, api: Api) -> HyperparameterTuner:
    """The tuner that the options describe."""
    assert options.objective, "it is asked for"
    return HyperparameterTuner(
        estimator,
        options.objective,
        ranges_of(options.range, options.choice),
        metrics_of(options.metric, options.md, objective=options.objective),
        STRATEGIES[options.strategy],
        "Maximize" if options.maximize else "Minimize",
        max_jobs=_most_trials(options),
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


def _require_sense(options: TuneOptions) -> None:
    require_sense(options)
    if not options.objective:
        raise click.UsageError("Which metric says how good a trial is? Name it with --objective.")
    if options.maximize is None:
        raise click.UsageError(f"Is more {options.objective} better, or less? Say --maximize or --minimize.")
    if not options.range and not options.choice and not options.autotune:
        raise click.UsageError("There is nothing to tune; give some --range or --choice, or --autotune.")
    if options.keep_alive:
        raise click.UsageError("Trials share warm workers as they are; leave --keep_alive out.")
    if options.transfer and not options.warm_start:
        raise click.UsageError("--transfer is said of studies to learn from; name some with --warm-start.")
    if options.resource and options.strategy != "hyperband":
        raise click.UsageError("--resource is for --strategy hyperband alone; leave one of them out.")


def _most_trials(options: TuneOptions) -> int | None:
    has_other_limit = options.strategy == "grid" or options.max_mins or options.until_converged or options.patience
    return options.trials or (None if has_other_limit else TRIALS)


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
    """The plan of a study, a line for each fact, below that of its trials."""
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
    assert isinstance(given, NumericParameter), "every other range is one of numbers"
    scaling = "" if given.scaling_type == "Auto" else f", {given.scaling_type}"
    return f"{given.min_value} to {given.max_value} ({given.kind}{scaling})"
