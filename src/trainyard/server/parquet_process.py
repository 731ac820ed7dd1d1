"""Shows the first rows of a Parquet file. Started by `python -m`, with the file on its standard input.

The file is a job's, and may be hostile, so the yard does not read it itself: this process has limits of memory and of
processor time, and it may crash.
"""

import importlib.util
import json
import os
import resource
import subprocess
import sys
from typing import Any

from trainyard.foundation.extras import install_command
from trainyard.server.control.process_limits import limit_cpu_time, lower_limit
from trainyard.server.control.worker_process import ONE_THREAD

MAX_BYTES = 64 * 1024 * 1024

_ROWS, _COLUMNS, _CELL = 100, 60, 300
_MEMORY_BYTES = 4 * 1024**3
_CPU_S, _LIMIT_S = 10, 20.0
_SECRET_PREFIXES = ("AWS_", "TRAINYARD_")


class Unreadable(Exception):
    """A Parquet file cannot be shown; the message says why."""


def read_parquet_head(content: bytes) -> dict[str, Any]:
    """Return the columns and first rows of a file, as another process reads them. Unreadable if it cannot."""
    if importlib.util.find_spec("pyarrow") is None:
        raise Unreadable(f"Showing its rows needs pyarrow where the yard runs: {install_command('arrow')}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SECRET_PREFIXES)}
    try:
        done = subprocess.run(
            (sys.executable, "-m", __name__),
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT_S,
            env=environment | ONE_THREAD,
            check=True,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        raise Unreadable("The file is damaged, or too large to show its rows here.") from error
    return answer


def main() -> int:
    lower_limit(resource.RLIMIT_AS, _MEMORY_BYTES)
    limit_cpu_time(_CPU_S)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    json.dump(_head(sys.stdin.buffer.read(MAX_BYTES)), sys.stdout)
    return 0


def _head(content: bytes) -> dict[str, Any]:
    import pyarrow
    from pyarrow import parquet

    file = parquet.ParquetFile(pyarrow.BufferReader(content))
    schema = file.schema_arrow
    names = schema.names[:_COLUMNS]
    batch = next(file.iter_batches(batch_size=_ROWS, columns=names), None)
    columns = [] if batch is None else [column.slice(0, _ROWS).to_pylist() for column in batch.columns]
    return {
        "columns": [str(name)[:_CELL] for name in names],
        "types": [str(schema.field(number).type)[:80] for number in range(len(names))],
        "rows": [[_cell(value) for value in row] for row in zip(*columns, strict=True)],
        "total": file.metadata.num_rows,
        "hasMoreColumns": len(schema.names) > _COLUMNS,
    }


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _CELL else f"{text[:_CELL]}…"


if __name__ == "__main__":
    raise SystemExit(main())
