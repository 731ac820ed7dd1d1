"""How a training job ended, and why or with what, as text."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.failure_card import Card, card_lines
from trainyard.following import Description
from trainyard.showing import clock_text, inert, money

Details = Mapping[str, Any]  # what DescribeJob answers


def summary(description: Description, details: Details) -> str:
    """The end of a job in a few lines: what it took and cost, then its model, or the card of its failure."""
    lines = [_end(description, details)]
    if description["TrainingJobStatus"] != "Failed":
        lines.append(_model(details))
    if card := details.get("FailureCard"):
        lines += (f"  {line}" for line in card_lines(card))
    else:
        lines += _reason(description)
    return "\n".join(lines)


def failure(description: Description, details: Details) -> str:
    """The text of an error: the reason as AWS words it, since programs look for its words, and the card after it."""
    card: Card | None = details.get("FailureCard")
    told = (f"  {line}" for line in card_lines(card)) if card else ()
    return "\n".join([_end(description, details), *_reason(description), *told])


def model_uri(details: Details) -> str | None:
    """Where the model is; None when the program saved none."""
    return next((artifact["S3Uri"] for artifact in details["Artifacts"] if artifact["Kind"] == "model"), None)


def _end(description: Description, details: Details) -> str:
    name, status = description["TrainingJobName"], description["TrainingJobStatus"]
    seconds, billable = description.get("TrainingTimeInSeconds"), description.get("BillableTimeInSeconds")
    text = f'Training job "{name}" is {status}'
    if not seconds:
        return f"{text}."
    text += f" after {clock_text(seconds)} of training, which cost {money(details['Cost'])}."
    if description.get("EnableManagedSpotTraining") and billable is not None:
        text += f" Spot saved {1 - billable / seconds:.0%}."
    return text


def _model(details: Details) -> str:
    uri = model_uri(details)
    return f"model: {uri}" if uri else "model: none was saved"


def _reason(description: Description) -> Iterator[str]:
    return (f"  {inert(line)}" for line in description.get("FailureReason", "").splitlines())
