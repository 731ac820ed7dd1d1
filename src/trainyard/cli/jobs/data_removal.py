"""What `trainyard rm --data` removes: the objects that jobs stored on S3."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainyard._sdk.connection import Api
from trainyard._sdk.training.job_data import DataPrefix, DataUse, data_prefixes, measure_data, remove_data
from trainyard._sdk.training.stream import Description
from trainyard.cli.terminal.console import say, size_text
from trainyard.cli.terminal.tables import Column, table_lines


@dataclass(frozen=True, slots=True)
class StoredData:
    """The objects of one prefix of a job."""

    job: str
    data: DataPrefix
    use: DataUse


def find_stored_data(api: Api, jobs: Iterable[Description], *, includes_shared: bool) -> list[StoredData]:
    """Return the prefixes of jobs that have objects. Those that other jobs may use are named, and left out by default.

    A prefix that two jobs share is returned once.
    """
    found: dict[str, StoredData] = {}
    for job in jobs:
        name = job["TrainingJobName"]
        for data in data_prefixes(job):
            if data.is_shared and not includes_shared:
                say(
                    f'Kept {data.uri}, the {data.kind} of "{name}": other jobs may use them. --shared removes them too.'
                )
                continue
            use = measure_data(api, data)
            if use.objects:
                found.setdefault(data.uri, StoredData(name, data, use))
    return list(found.values())


def print_stored_data(stored: Sequence[StoredData]) -> None:
    """Show the prefixes with their sizes, as a message."""
    columns: list[Column | str] = [
        "job",
        "what",
        "location",
        Column("objects", align="right"),
        Column("size", align="right"),
    ]
    rows = [
        [each.job, each.data.kind, each.data.uri, f"{each.use.objects:,}", size_text(each.use.bytes)] for each in stored
    ]
    for line in table_lines(columns, rows):
        say(line)


def sum_text(stored: Sequence[StoredData]) -> str:
    """Return the sum of all prefixes, such as `1,200 objects, 3.5 GiB`."""
    objects = sum(each.use.objects for each in stored)
    size = size_text(sum(each.use.bytes for each in stored))
    return f"{objects:,} {'object' if objects == 1 else 'objects'}, {size}"


def remove_stored_data(api: Api, stored: Sequence[StoredData]) -> None:
    for each in stored:
        remove_data(api, each.data)
