"""The reading process: reads traces that programs wrote, for the yard. Started by `python -m`, with a folder.

Traces are large, and what programs wrote may be hostile. So this process has limits of memory and of processor time,
and whatever happens to it happens to no yard. The folder keeps the tables of traces that were read.
"""

import select
import sys
from pathlib import Path
from typing import IO, Any

from trainyard.foundation.extras import extra_of
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.control.process_limits import begin_reading, limit_cpu_time
from trainyard.server.control.worker_messages import receive, send, send_blobs
from trainyard.server.traces import contract

IDLE_S = 300.0
# For one question. A trace of a gigabyte takes about a tenth of that.
CPU_LIMIT_S = 90
MEMORY_LIMIT_BYTES = 6 * 1024**3
FILE_LIMIT_BYTES = 8 * 1024**3

_QUESTIONS = {
    each.__name__: each
    for each in (
        contract.SummaryQuestion,
        contract.PartQuestion,
        contract.SearchQuestion,
        contract.SliceQuestion,
    )
}


def main() -> int:
    folder = Path(sys.argv[1])
    answers = begin_reading(folder, memory_bytes=MEMORY_LIMIT_BYTES, file_bytes=FILE_LIMIT_BYTES)
    serve_traces(folder, sys.stdin.buffer, answers, idle_s=IDLE_S)
    return 0


def serve_traces(folder: Path, questions: IO[bytes], answers: IO[bytes], *, idle_s: float) -> None:
    """Answer questions until their input ends or none comes for `idle_s` seconds.

    The yard sends nothing before it has an answer, so that nothing waits in a buffer while `select` looks.
    """
    traces: Any = None
    while select.select([questions], [], [], idle_s)[0]:
        try:
            asked = receive(questions).message
        except EOFError:
            return
        limit_cpu_time(CPU_LIMIT_S)
        try:
            # Imported only here, so that numpy uses one thread, and a missing package is an answer.
            from trainyard.server.traces.open_traces import OpenTraces, UnreadTrace

            traces = traces or OpenTraces(folder)
        except ModuleNotFoundError as error:
            missing = extra_of(error)
            send(answers, {"error": missing.message if missing else str(error), "kind": "InvalidRequest"})
            continue
        try:
            reply = traces.answer(
                asked["trace"], asked["path"], from_plain(_QUESTIONS[asked["ask"]], asked["question"])
            )
        except UnreadTrace:
            send(answers, {"is_unread": True})
        except IndexError as error:
            send(answers, {"error": str(error), "kind": "NotFound"})
        except MemoryError:
            send(answers, {"error": "it needs more memory than a reading may use.", "kind": "InvalidRequest"})
        except Exception as error:
            # The edge of the process: whatever a trace holds, the next question must be answered.
            send(answers, {"error": f"{type(error).__name__}: {error}", "kind": "InvalidRequest"})
        else:
            send_blobs(answers, to_plain(reply.answer), reply.blobs)


if __name__ == "__main__":
    sys.exit(main())
