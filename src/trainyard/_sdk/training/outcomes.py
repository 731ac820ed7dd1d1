"""How a training job ended, as text: its summary, its model, and its failure card."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard._sdk.training.console import duration_text, price_text, terminal_safe
from trainyard._sdk.training.stream import Description

# The response of DescribeJob, and the failure card in it.
Details = Mapping[str, Any]
Card = Mapping[str, Any]

# The folder of the code in the instances; users know their files without it.
_CODE = "/opt/ml/code/"


def summary(description: Description, details: Details, *, shows_price: bool = False) -> str:
    """Return the end of a job in a few lines: time and cost, then the model or the failure card.

    The cost is left out if no price is set, because the prices are approximations then; `shows_price` includes it.
    """
    lines = [_end(description, details, shows_price=shows_price)]
    if description["TrainingJobStatus"] != "Failed":
        lines.append(_model(details))
    if card := details.get("FailureCard"):
        lines += (f"  {line}" for line in card_lines(card))
    else:
        lines += _reason(description)
    return "\n".join(lines)


def failure(description: Description, details: Details) -> str:
    """Return the message of an error: the reason in the words of AWS, which programs search for, then the card."""
    card: Card | None = details.get("FailureCard")
    lines = (f"  {line}" for line in card_lines(card)) if card else ()
    return "\n".join([_end(description, details, shows_price=False), *_reason(description), *lines])


def model_uri(details: Details) -> str | None:
    """Return the location of the model; None if the script saved none."""
    return next((artifact["S3Uri"] for artifact in details["Artifacts"] if artifact["Kind"] == "model"), None)


def card_lines(card: Card) -> list[str]:
    """Return a failure card in short form: the class of failure, the exception, its location, and the advice."""
    lines = (*_head(card), *_exception(card), *(f"try: {advice}" for advice in card["Advice"]))
    return [terminal_safe(line) for line in lines]


def card_log_lines(card: Card) -> Sequence[str]:
    """Return the last log lines of the failed instance."""
    return [terminal_safe(line) for line in card.get("LastLines", ())]


def training_time_s(description: Description, details: Details) -> float | None:
    """Return how long a job trained: exactly if it had one attempt, else in whole seconds; None before it trained."""
    seconds: int | None = description.get("TrainingTimeInSeconds")
    start, end = description.get("TrainingStartTime"), description.get("TrainingEndTime")
    if seconds is None or len(details.get("Attempts", ())) > 1 or not (start and end):
        return seconds
    exact: float = (end - start).total_seconds()
    return exact


def _end(description: Description, details: Details, *, shows_price: bool) -> str:
    name, status = description["TrainingJobName"], description["TrainingJobStatus"]
    seconds, billable = description.get("TrainingTimeInSeconds"), description.get("BillableTimeInSeconds")
    text = f'Training job "{name}" is {status}'
    trained_s = training_time_s(description, details)
    if trained_s is None:
        return f"{text}."
    has_price = shows_price or details.get("PriceIsSet")
    text += f" after {duration_text(trained_s)} of training"
    text += f", which cost {price_text(details['Cost'])}." if has_price else "."
    if seconds and description.get("EnableManagedSpotTraining") and billable is not None:
        text += f" Spot saved {1 - billable / seconds:.0%}."
    return text


def _model(details: Details) -> str:
    uri = model_uri(details)
    return f"model: {uri}" if uri else "model: none was saved"


def _reason(description: Description) -> Iterator[str]:
    return (f"  {terminal_safe(line)}" for line in description.get("FailureReason", "").splitlines())


def _head(card: Card) -> Iterator[str]:
    where = f" on {card['Instance']}" if card.get("Instance") else ""
    if card.get("Rank") is not None:
        where = f" of rank {card['Rank']}{where}"
    yield f"{card['Class']}{where}{_exit_text(card)}"


def _exit_text(card: Card) -> str:
    if card.get("Signal"):
        return f", ended by {card['Signal']}"
    return f", exit code {card['ExitCode']}" if card.get("ExitCode") is not None else ""


def _exception(card: Card) -> Iterator[str]:
    error = card.get("Exception")
    if not error:
        yield from card.get("Summary", "").splitlines()
        return
    message = error.get("Message", "")
    yield from f"{error['Type']}: {message}".splitlines() if message else [error["Type"]]
    if error.get("File"):
        function = f" in {error['Function']}" if error.get("Function") else ""
        source = f": {error['Source'].strip()}" if error.get("Source") else ""
        yield f"at {error['File'].removeprefix(_CODE)}:{error.get('Line', '?')}{function}{source}"
