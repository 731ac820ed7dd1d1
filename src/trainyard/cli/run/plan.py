"""The plan of a job and its cost, which `trainyard run` prints before it starts the job."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard._sdk.training.console import price_text
from trainyard._sdk.training.local_modules import find_local_code
from trainyard.cli.run.arguments import InputArgument
from trainyard.cli.yard.yard_text import shares_text
from trainyard.estimator import Framework
from trainyard.foundation.engine_names import LOCAL

# The response of QuoteJob.
Quote = Mapping[str, Any]

_MAX_SHOWN = 8


def plan_lines(
    estimator: Framework,
    inputs: Sequence[InputArgument],
    *,
    hyperparameters: Mapping[str, Any],
    quote: Quote,
    shows_price: bool = False,
) -> Iterator[str]:
    """Yield the plan of a job, one property per line. The price is among them if it is set, or with `shows_price`."""
    arguments = " ".join(f"--{name} {value}" for name, value in hyperparameters.items())
    folder = f" in {estimator.source_dir}" if estimator.source_dir else ""
    facts = (
        ("script", f"{estimator.entry_point}{folder}"),
        ("with", _local_code(estimator)),
        ("arguments", arguments),
    )
    price = _price(quote) if shows_price or quote.get("PriceIsSet") else ""
    for title, value in (*facts, *_rows(estimator, inputs, quote), ("price", price), ("queue", _queue(quote))):
        if value:
            yield f"  {title:<12}{value}"


def _rows(estimator: Framework, inputs: Sequence[InputArgument], quote: Quote) -> Iterator[tuple[str, str]]:
    yield "image", estimator.training_image_uri()
    yield from (("note", note) for note in quote.get("ImageNotes", ()))
    spot = ", spot" if estimator.use_spot_instances else ""
    isolated = ", without network access" if estimator.enable_network_isolation else ""
    yield "instances", f"{_instances(estimator)}{spot}{isolated}"
    if quote["Engine"] != LOCAL:
        yield "engine", f"{quote['Engine']}, because {quote['EngineReason']}"
    # There are notes if the machine has less than the instance type promises.
    if quote["Notes"]:
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


def _local_code(estimator: Framework) -> str:
    """Return what is packed beside the script: its requirements and modules; a folder stands for its files."""
    if not estimator.entry_point or not estimator.include_local_modules or estimator.source_dir:
        return ""
    code = find_local_code(Path(estimator.entry_point))
    counts = Counter(file.parts[0] for file in code.files)
    shown = [f"{name}/ ({_count(counts[name], 'file')})" if (code.folder / name).is_dir() else name for name in counts]
    rest = len(shown) - _MAX_SHOWN
    return ", ".join(shown[:_MAX_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


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
    text = f"{price_text(quote['PricePerHour'])} per hour"
    return text + (f", at most {price_text(quote['MostCost'])} within the time limit" if "MostCost" in quote else "")


def _queue(quote: Quote) -> str:
    """Return the length of the queue, and why the engine starts no jobs; empty if the job can start at once."""
    ahead = quote["QueuedJobs"]
    waiting = f"{ahead} {'job' if ahead == 1 else 'jobs'} ahead"
    if quote.get("Obstacle"):
        return f"{waiting + ', ' if ahead else ''}waiting for its engine: {quote['Obstacle']}"
    if ahead:
        return waiting
    return "" if quote["FreeSlots"] else "first in the queue, but all slots are in use"
