"""How a processing job ended, as text: its summary, its outputs, and its failure card."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard._sdk.training.console import duration_text, terminal_safe
from trainyard._sdk.training.outcomes import Details, card_lines
from trainyard._sdk.training.stream import Description
from trainyard.exceptions import CapacityError, UnexpectedStatusException


def summary(description: Description, details: Details) -> str:
    """Return the end of a job in a few lines: the time, then its message and outputs, or the failure card."""
    lines = [_end(description)]
    if message := description.get("ExitMessage", "").strip():
        lines.append(f"message: {terminal_safe(message)}")
    lines += (f"output {name}: {uri}" for name, uri in output_uris(description).items())
    if card := details.get("FailureCard"):
        lines += (f"  {line}" for line in card_lines(card))
    else:
        lines += _reason(description)
    return "\n".join(lines)


def output_uris(description: Description) -> dict[str, str]:
    """Return the locations of the outputs by name, without those that the program stores itself."""
    outputs = description.get("ProcessingOutputConfig", {}).get("Outputs", ())
    return {each["OutputName"]: each["S3Output"]["S3Uri"] for each in outputs if "S3Output" in each}


def require_no_failure(description: Description, details: Details) -> None:
    """Raise an error if a job has failed. The message has its name, the reason and advice."""
    status = description["ProcessingJobStatus"]
    if status != "Failed":
        return
    card: Mapping[str, Any] | None = details.get("FailureCard")
    lines = (f"  {line}" for line in card_lines(card)) if card else ()
    message = "\n".join([_end(description), *_reason(description), *lines])
    kind = CapacityError if "CapacityError" in description.get("FailureReason", "") else UnexpectedStatusException
    raise kind(message, ("Completed", "Stopped"), status)


def _end(description: Description) -> str:
    text = f'Processing job "{description["ProcessingJobName"]}" is {description["ProcessingJobStatus"]}'
    start, end = description.get("ProcessingStartTime"), description.get("ProcessingEndTime")
    return f"{text} after {duration_text((end - start).total_seconds())}." if start and end else f"{text}."


def _reason(description: Description) -> Iterator[str]:
    return (f"  {terminal_safe(line)}" for line in description.get("FailureReason", "").splitlines())
