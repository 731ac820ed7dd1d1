"""One page of trial components, filtered and sorted by parameters and metrics, among growing numbers of components.

    python -m benchmarks.experiments [--counts N…] [--metrics N] [--calls N] [--records URL]

The components are written into the records of a stopped yard. A call is timed from its first byte to the last byte of
the answer, on a persistent connection, with the signature computed before. With `--records`, they are in an empty
PostgreSQL database.
"""

import argparse
import http.client
import json
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from benchmarks.measurement import write_results
from trainyard.foundation.clock import to_micros
from trainyard.foundation.experiments import ComponentStatus, MetricStatistics, Parent, TrialComponent
from trainyard.foundation.home import Home
from trainyard.foundation.plain import to_plain
from trainyard.server.experiments.storage import COMPONENT, component_values, entity_arn
from trainyard.server.records.resources import new_id
from trainyard.testing.yard import RunningYard, running_yard

GOAL_MS = 50.0
PAGE = 10
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
# One component in so many belongs to each experiment.
EXPERIMENTS = {"large": 2, "small": 5000}

_RESOURCE = (
    *("id", "account", "kind", "name", "region", "status", "created_at", "modified_at", "revision", "body"),
    *("parent", "arn", "due_at", "queue", "lease_token", "lease_worker", "lease_expires_at", "state", "priority"),
)
_VALUE = ("resource", "name", "text", "number", "account", "kind")
_INDEXES = ("resource_values_by_number", "resource_values_by_text")


def where(name: str, operator: str, value: str = "") -> dict[str, str]:
    return {"Name": name, "Operator": operator} | ({"Value": value} if value else {})


def search(*filters: Mapping[str, str], **asked: Any) -> tuple[str, dict[str, Any]]:
    expression = {"SearchExpression": {"Filters": list(filters)}} if filters else {}
    return "Search", {"Resource": "ExperimentTrialComponent", "MaxResults": PAGE, **expression, **asked}


IN_LARGE, IN_SMALL = (where("Parents.ExperimentName", "Equals", name) for name in EXPERIMENTS)
ASKED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "list, newest first": ("ListTrialComponents", {"MaxResults": PAGE}),
    "list of a large trial, by name": ("ListTrialComponents", {"TrialName": "large", "SortBy": "Name"}),
    "newest of a large experiment": search(IN_LARGE),
    "a small experiment": search(IN_SMALL),
    "best of all": search(SortBy="Metrics.metric-7.Max"),
    "best of a large experiment": search(IN_LARGE, SortBy="Metrics.metric-7.Max"),
    "best of a small experiment": search(IN_SMALL, SortBy="Metrics.metric-7.Min", SortOrder="Ascending"),
    "metric above, half match": search(where("Metrics.metric-3.Last", "GreaterThan", "0.5")),
    "metric above, one in 10,000": search(where("Metrics.metric-3.Last", "GreaterThan", "0.9999")),
    "metric and parameter, one in 40": search(
        where("Metrics.metric-3.Last", "GreaterThan", "0.9"), where("Parameters.model", "Equals", "cnn")
    ),
    "three filters, sorted by a fourth": search(
        IN_LARGE,
        where("Parameters.lr", "LessThan", "0.5"),
        where("Metrics.metric-1.Max", "GreaterThan", "0.5"),
        SortBy="Metrics.metric-2.Last",
    ),
    "a hundred results": search(IN_LARGE, MaxResults=100),
}


@dataclass(frozen=True, slots=True)
class Asker:
    """Sends signed calls to one yard, on one connection."""

    connection: http.client.HTTPConnection
    headers: Callable[[str, bytes], Mapping[str, str]]

    def ask(self, operation: str, request: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
        """Return how many milliseconds an answer took, and the answer."""
        body = json.dumps(request).encode()
        headers = self.headers(operation, body)
        begun = time.perf_counter()
        self.connection.request("POST", "/", body, dict(headers))
        answer = self.connection.getresponse()
        data = answer.read()
        took = (time.perf_counter() - begun) * 1000
        assert answer.status == 200, data
        return took, json.loads(data)


def main() -> None:
    arguments = _arguments()
    found: dict[str, dict[str, Mapping[str, list[float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        home, filled = Home(Path(folder) / "home"), 0
        environment = {**os.environ, **({"TRAINYARD_SERVER_RECORDS": arguments.records} if arguments.records else {})}
        with running_yard(home.root, environment=environment) as yard:
            account, region = yard.credentials.account, yard.credentials.region
            _create_experiments(yard)
        for count in arguments.counts:
            begun = time.perf_counter()
            rows = _components(range(filled, count), account, region=region, metrics=arguments.metrics)
            _fill(arguments.records or str(home.records_file), rows)
            filled = count
            print(f"{count:,} components after {time.perf_counter() - begun:.0f} s", flush=True)
            with running_yard(home.root, environment=environment) as yard, _asker(yard) as asker:
                found[str(count)] = {name: _page_times(asker, asked, arguments.calls) for name, asked in ASKED.items()}
            for name, pages in found[str(count)].items():
                print(
                    f"  {name:<36}"
                    + "".join(f"{page}: {statistics.median(ms):6.1f} ms  " for page, ms in pages.items())
                )
    where_to = write_results(
        "experiments", {"metrics": arguments.metrics, "calls": arguments.calls, "milliseconds": found}
    )
    worst = max(statistics.median(ms) for pages in found[str(filled)].values() for ms in pages.values())
    print(f"\nThe slowest page takes {worst:.1f} ms; the goal is {GOAL_MS:.0f} ms. All of it is in {where_to}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure lists and searches of trial components.")
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--metrics", type=int, default=50, help="of each component")
    parser.add_argument("--calls", type=int, default=20, help="of each kind")
    parser.add_argument("--records", default="", help="postgresql://… of an empty database")
    return parser.parse_args()


def _create_experiments(yard: RunningYard) -> None:
    with _asker(yard) as asker:
        for name in EXPERIMENTS:
            asker.ask("CreateExperiment", {"ExperimentName": name})
            asker.ask("CreateTrial", {"TrialName": name, "ExperimentName": name})


def _page_times(asker: Asker, asked: tuple[str, dict[str, Any]], calls: int) -> dict[str, list[float]]:
    """Return the times of the first page and of the second, the first call of each left out."""
    operation, request = asked
    times: dict[str, list[float]] = {"first page": []}
    _, answer = asker.ask(operation, request)
    for _ in range(calls):
        times["first page"].append(asker.ask(operation, request)[0])
    if token := answer.get("NextToken"):
        asker.ask(operation, request | {"NextToken": token})
        times["next page"] = [asker.ask(operation, request | {"NextToken": token})[0] for _ in range(calls)]
    return times


@contextmanager
def _asker(yard: RunningYard) -> Iterator[Asker]:
    keys = yard.credentials
    signer = SigV4Auth(Credentials(keys.access_key_id, keys.secret_access_key), "sagemaker", keys.region)

    def headers(operation: str, body: bytes) -> Mapping[str, str]:
        named = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"SageMaker.{operation}"}
        request = AWSRequest("POST", f"{yard.http}/", headers=named, data=body)
        signer.add_auth(request)
        return dict(request.headers)

    with closing(http.client.HTTPConnection(urlsplit(yard.http).netloc)) as connection:
        yield Asker(connection, headers)


Rows = Iterator[tuple[tuple[Any, ...], list[tuple[Any, ...]]]]


def _components(numbers: range, account: str, *, region: str, metrics: int) -> Rows:
    """Yield each component as the row of its resource and the rows of its values."""
    for number in numbers:
        component = _component(number, account, region=region, metrics=metrics)
        at = NOON + timedelta(seconds=number)
        id_ = new_id(at)
        micros, key = to_micros(at), component.name.lower()
        body = json.dumps(to_plain(component), separators=(",", ":"))
        resource = (
            *(id_, account, COMPONENT, key, region, str(component.status), micros, micros, 1, body),
            *(None, component.arn, None, None, None, None, None, "", 0),
        )
        values: list[tuple[Any, ...]] = []
        for name, value in component_values(component).items():
            if isinstance(value, tuple):
                values += [(id_, name, each, None, account, COMPONENT) for each in value]
            else:
                values.append((id_, name, "", float(value), account, COMPONENT))
        yield resource, sorted(values)


def _component(number: int, account: str, *, region: str, metrics: int) -> TrialComponent:
    chance = random.Random(number)
    name = f"component-{number:07}"
    last = [chance.random() for _ in range(metrics)]
    bare = TrialComponent(
        name=name,
        arn=entity_arn(region, account, COMPONENT, name),
        status=ComponentStatus.COMPLETED,
        started_at=NOON,
        ended_at=NOON,
        parameters={"lr": chance.random(), "batch": 32.0, "model": chance.choice(["cnn", "mlp", "vit", "gnn"])},
        metrics={
            f"metric-{place}": MetricStatistics(value, NOON, 100, 100, value / 2, value + 0.5, value, 1.0)
            for place, value in enumerate(last)
        },
    )
    experiments = [experiment for experiment, one_in in EXPERIMENTS.items() if number % one_in == 0]
    return replace(bare, parents=tuple(Parent(each, each) for each in experiments))


def _fill(where_to: str, rows: Rows) -> None:
    if where_to.startswith("postgresql://"):
        _fill_postgres(where_to, rows)
    else:
        _fill_sqlite(where_to, rows)


def _fill_sqlite(path: str, rows: Rows) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = -500000")
        indexes = [
            database.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0] for name in _INDEXES
        ]
        database.execute("BEGIN")
        # One by one, five million entries of an index would take many times as long.
        for name in _INDEXES:
            database.execute(f"DROP INDEX {name}")
        for some in _batches(rows, 1000):
            database.executemany(_insert("resources", _RESOURCE, "?"), [resource for resource, _ in some])
            database.executemany(
                _insert("resource_values", _VALUE, "?"), [value for _, values in some for value in values]
            )
        for statement in indexes:
            database.execute(statement)
        database.execute("COMMIT")


def _fill_postgres(url: str, rows: Rows) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as database:
        for some in _batches(rows, 5000):
            with database.cursor() as cursor:
                with cursor.copy(f"COPY resources ({', '.join(_RESOURCE)}) FROM STDIN") as copy:
                    for resource, _ in some:
                        copy.write_row(resource)
                with cursor.copy(f"COPY resource_values ({', '.join(_VALUE)}) FROM STDIN") as copy:
                    for _, values in some:
                        for value in values:
                            copy.write_row(value)
        # As autovacuum does within a minute.
        database.execute("VACUUM ANALYZE")


def _insert(table: str, columns: Iterable[str], place: str) -> str:
    names = list(columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(place for _ in names)})"


def _batches(rows: Rows, size: int) -> Iterator[list[tuple[tuple[Any, ...], list[tuple[Any, ...]]]]]:
    some = []
    for row in rows:
        some.append(row)
        if len(some) == size:
            yield some
            some = []
    yield some


if __name__ == "__main__":
    main()
