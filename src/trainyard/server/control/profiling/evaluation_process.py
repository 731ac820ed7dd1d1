"""The evaluation process: judges profiles, evaluates rules on them, and writes reports. Started by `python -m`.

Profiles are large, and what programs wrote into them may be hostile. So this process has limits of memory and of
processor time, and whatever happens to it happens to no yard. It remembers nothing between questions.
"""

import json
import resource
import sys
import time
import traceback
from typing import Any

from trainyard.foundation.extras import extra_of
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.control.process_limits import limit_cpu_time, lower_limit
from trainyard.server.control.profiling.contract import EvaluationQuestion, RunQuestion, TraceQuestion
from trainyard.server.control.worker_process import Message, serve_questions

IDLE_S = 60.0
# Below the priority of the programs that it profiles, but not so far that busy ones stop it.
NICENESS = 10
# For one question. A trace of a gigabyte takes about a tenth of that.
CPU_LIMIT_S = 90
# Addresses, of which numpy and the code take a few hundred MB.
MEMORY_LIMIT_BYTES = 6 * 1024**3
# What it may write: a report, or the tables of a trace.
FILE_LIMIT_BYTES = 8 * 1024**3


def main() -> int:
    lower_limit(resource.RLIMIT_AS, MEMORY_LIMIT_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lower_limit(resource.RLIMIT_FSIZE, FILE_LIMIT_BYTES)
    serve_questions(_MeteredAnswers().answer, niceness=NICENESS, idle_s=IDLE_S)
    return 0


class _MeteredAnswers:
    """Answers within a limit of processor time, and says what each answer cost; the first one pays for the start."""

    def __init__(self) -> None:
        self._spent_s = 0.0

    def answer(self, line: Message) -> Message:
        limit_cpu_time(CPU_LIMIT_S)
        told = answer(line)
        before, self._spent_s = self._spent_s, time.process_time()
        return {**told, "cpu_s": self._spent_s - before}


def answer(line: Message) -> Message:
    """Answer a question. An error is an answer too."""
    try:
        # Imported only here, so that numpy uses one thread, and a missing package is an answer.
        if "run" in line:
            from trainyard.server.control.profiling.run_summary import summarize

            return {"run": summarize(from_plain(RunQuestion, line["run"]))}
        from trainyard.server.control.profiling.evaluation import check_trace, evaluate

        if "trace" in line:
            check_trace(from_plain(TraceQuestion, line["trace"]))
            return {}
        conclusion = evaluate(from_plain(EvaluationQuestion, line["profile"]))
    except ModuleNotFoundError as error:
        missing = extra_of(error)
        return {"error": missing.message if missing else traceback.format_exc(), "is_missing": missing is not None}
    except MemoryError:
        return {"error": "It needs more memory than an evaluation may use."}
    except Exception:
        # The edge of the process: whatever a profile holds, the next question must be answered.
        return {"error": traceback.format_exc()}
    answered: Message = _finite(to_plain(conclusion))
    return answered


def _finite(plain: Any) -> Any:
    """Return JSON without NaN and infinity, which no other reader accepts."""
    return json.loads(json.dumps(plain), parse_constant=lambda _: None)


if __name__ == "__main__":
    sys.exit(main())
