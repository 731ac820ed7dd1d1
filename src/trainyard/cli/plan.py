"""What `trainyard run` is about to do and what that costs, before it does it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.cli.run_arguments import InputArgument
from trainyard.cli.shares import shares_text
from trainyard.estimator import Framework
from trainyard.foundation.engine_names import LOCAL
from trainyard.showing import money

Quote = Mapping[str, Any]  # what QuoteJob answers


def plan_lines(
    estimator: Framework, inputs: Sequence[InputArgument], *, hyperparameters: Mapping[str, Any], quote: Quote
) -> Iterator[str]:
    """The plan of a job, a line for each fact."""
    arguments = " ".join(f"--{name} {value}" for name, value in hyperparameters.items())
    folder = f" in {estimator.source_dir}" if estimator.source_dir else ""
    facts = (("script", f"{estimator.entry_point}{folder}"), ("arguments", arguments))
    for title, value in (*facts, *_rows(estimator, inputs, quote)):
        if value:
            yield f"  {title:<12}{value}"


def _rows(estimator: Framework, inputs: Sequence[InputArgument], quote: Quote) -> Iterator[tuple[str, str]]:
    yield "image", estimator.training_image_uri()
    spot = ", spot" if estimator.use_spot_instances else ""
    isolated = ", isolated from every network" if estimator.enable_network_isolation else ""
    yield "instances", f"{_instances(estimator)}{spot}{isolated}"
    if quote["Engine"] != LOCAL:
        yield "engine", f"{quote['Engine']}, because {quote['EngineReason']}"
    if quote["Notes"]:  # the machine has less than the type promises
        yield "share", "; ".join(shares_text(quote["Shares"]))
        yield from (("note", note) for note in quote["Notes"])
    for given in inputs:
        mode = given.mode or estimator.input_mode
        how = given.distribution if mode == "File" else f"{mode}, {given.distribution}"
        yield f"input {given.channel}", f"{given.location} ({how})"
    yield "model", estimator.model_uri or ""
    yield "checkpoints", estimator.checkpoint_s3_uri or ""
    yield "output", f"s3://{estimator.session.default_bucket()}/"
    yield "time limit", _limit(estimator.max_run)
    yield "price", _price(quote)
    yield "queue", _queue(quote)


def _instances(estimator: Framework) -> str:
    groups = [
        f"{group.instance_group_name} of {group.instance_count} x {group.instance_type}"
        for group in estimator.instance_groups or ()
    ]
    return ", ".join(groups) or f"{estimator.instance_count} x {estimator.instance_type}"


def _limit(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    hours, minutes = divmod(seconds // 60, 60)
    words = [f"{hours} h"] if hours else []
    words += [f"{minutes} min"] if minutes or not hours else []
    return " ".join(words)


def _price(quote: Quote) -> str:
    text = f"{money(quote['PricePerHour'])} per hour"
    return text + (f", at most {money(quote['MostCost'])} within the time limit" if "MostCost" in quote else "")


def _queue(quote: Quote) -> str:
    """How long the line is, and what keeps its engine from starting anything; nothing where the job can start."""
    before = quote["QueuedJobs"]
    waiting = f"{before} {'job waits' if before == 1 else 'jobs wait'} before it"
    if quote.get("Obstacle"):
        return f"{waiting if before else 'it waits'}, for its engine is not there now: {quote['Obstacle']}"
    if before:
        return waiting
    return "" if quote["FreeSlots"] else "no job waits before it, but all slots are in use"
