"""The reading process: reads the tensors that programs wrote, for the yard. Started by `python -m`, with a folder.

Runs are large, and what programs wrote may be hostile. So this process has limits of memory and of processor time, and
whatever happens to it happens to no yard. The folder holds copies of what it reads; it is emptied at the start.
"""

import select
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from trainyard.foundation.extras import extra_of
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.control.process_limits import begin_reading, limit_cpu_time
from trainyard.server.control.worker_messages import receive, send, send_blobs
from trainyard.server.tensors import contract

IDLE_S = 300.0
# For one question. A run of half a gigabyte takes about a tenth of that.
CPU_LIMIT_S = 40
# The maps of what is kept, and what an answer needs besides.
MEMORY_LIMIT_BYTES = 6 * 1024**3
FILE_LIMIT_BYTES = 1024**3

_QUESTIONS = {
    each.__name__: each
    for each in (
        contract.TensorsQuestion,
        contract.GridQuestion,
        contract.HistogramsQuestion,
        contract.ValuesQuestion,
    )
}


def main() -> int:
    folder = Path(sys.argv[1])
    answers = begin_reading(folder, memory_bytes=MEMORY_LIMIT_BYTES, file_bytes=FILE_LIMIT_BYTES)
    # Where readers put what they fetch.
    tempfile.tempdir = str(folder)
    serve_trials(sys.stdin.buffer, answers, idle_s=IDLE_S)
    return 0


def serve_trials(questions: IO[bytes], answers: IO[bytes], *, idle_s: float) -> None:
    """Answer questions until their input ends or none comes for `idle_s` seconds.

    The yard sends nothing before it has an answer, so that nothing waits in a buffer while `select` looks.
    """
    trials: Any = None
    while select.select([questions], [], [], idle_s)[0]:
        try:
            asked = receive(questions).message
        except EOFError:
            return
        limit_cpu_time(CPU_LIMIT_S)
        try:
            # Imported only here, so that numpy uses one thread, and a missing package is an answer.
            from trainyard.server.tensors.bounded_source import AskedSource
            from trainyard.server.tensors.open_trials import OpenTrials, answer_error

            if trials is None:
                trials = OpenTrials(lambda place: AskedSource(place, questions, answers))
        except ModuleNotFoundError as error:
            missing = extra_of(error)
            send(answers, {"error": missing.message if missing else str(error), "kind": "InvalidRequest"})
            continue
        try:
            reply = trials.answer(asked["place"], from_plain(_QUESTIONS[asked["ask"]], asked["question"]))
        except EOFError:
            return
        except Exception as error:
            # The edge of the process: whatever a trial holds, the next question must be answered.
            send(answers, answer_error(error))
            continue
        send_blobs(answers, to_plain(reply.answer), reply.blobs)


if __name__ == "__main__":
    sys.exit(main())
