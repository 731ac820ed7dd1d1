"""What evaluating the profile of a long job costs the yard: CPU seconds and memory of the evaluation process.

    python -m benchmarks.profile_evaluation [--rounds N] [--hours N] [--ranks N] [--cores N]

The job has run for a day on one instance with 96 cores and 8 GPUs, sampled every second, with 8 ranks of 50,000 rows of
step times each. A round is a question to the real process: all rules, the verdict, and the report. The start of the
process is part of the first one. The summary of a run, which every longer job leaves, is measured with that start too.
"""

import argparse
import tempfile
from datetime import timedelta
from pathlib import Path
from statistics import median

from benchmarks.measurement import memory, write_results
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.formats.profiles.hardware_writer import HardwareWriter
from trainyard.formats.profiles.step_times import HEADER, SUFFIX, StepRow, encode_row
from trainyard.foundation.plain import to_plain
from trainyard.server.control.profiling.conclusions import EvaluationProcess
from trainyard.server.control.profiling.contract import EvaluationQuestion, RuleQuestion, RunQuestion, SourcePlace

GOAL_S = 3.0  # once every five minutes is one hundredth of a processor
START_US = 1_800_000_000_000_000
ROWS = 50_000
_WAITING = (0.6, 0.02, 0.1, 0.2, 0.05, 0.03, 0.0, 0.0)
_OF_GPUS = (HardwareMetric.GPU_PERCENT, HardwareMetric.GPU_MEMORY_PERCENT, HardwareMetric.GPU_POWER_WATTS)
_LIMIT = timedelta(minutes=5)


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        question = _make_question(Path(folder), arguments)
        summary_s = _summarize(question)
        process = EvaluationProcess()
        try:
            times = [_evaluate(process, question) for _ in range(arguments.rounds)]
            assert process.pid is not None, "it has answered"
            used = memory(process.pid).resident
        finally:
            process.retire()
            process.end()
    print(f"{median(times):.2f} s of CPU time ({min(times):.2f} to {max(times):.2f}); the goal is {GOAL_S:g} s")
    print(f"{used:.0f} MB of memory")
    print(f"{summary_s:.2f} s of CPU time for a summary")
    values = {"seconds": times, "summary_s": summary_s, "resident_mb": used, "goal_s": GOAL_S, **vars(arguments)}
    print(f"All of it is in {write_results('profile_evaluation', values)}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the evaluation of the profile of a long job.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--cores", type=int, default=96)
    return parser.parse_args()


def _evaluate(process: EvaluationProcess, question: EvaluationQuestion) -> float:
    process.begin()
    answer = process.ask({"profile": to_plain(question)}, _LIMIT)
    assert "error" not in answer, answer["error"]
    return float(answer["cpu_s"])


def _summarize(question: EvaluationQuestion) -> float:
    """Return what the summary of a run costs a process that is started for it."""
    process = EvaluationProcess()
    assert question.ended_us is not None, "the job has ended"
    run = RunQuestion(question.job, question.started_us, question.ended_us, question.sources)
    try:
        process.begin()
        return float(process.ask({"run": to_plain(run)}, _LIMIT)["cpu_s"])
    finally:
        process.retire()
        process.end()


def _make_question(folder: Path, arguments: argparse.Namespace) -> EvaluationQuestion:
    seconds = int(arguments.hours * 3600)
    _write_hardware(folder / "hardware", seconds, gpus=arguments.ranks, cores=arguments.cores)
    _write_steps(folder / "steps", seconds, ranks=arguments.ranks)
    (folder / "report").mkdir()
    end_us = START_US + seconds * 1_000_000
    return EvaluationQuestion(
        job="long",
        job_arn="arn",
        region="eu-west-3",
        now_us=end_us,
        started_us=START_US,
        ended_us=end_us,
        sources=(SourcePlace("algo-1", str(folder / "hardware"), str(folder / "steps"), cores=arguments.cores),),
        rules=(RuleQuestion("report", "ProfilerReport"),),
        report=str(folder / "report"),
        cache=str(folder / "cache"),
    )


def _write_hardware(folder: Path, seconds: int, *, gpus: int, cores: int) -> None:
    series = [HardwareSeries(HardwareMetric.CPU_PERCENT, f"core{number}") for number in range(cores)]
    series += [HardwareSeries(metric, f"gpu{number}") for number in range(gpus) for metric in _OF_GPUS]
    with HardwareWriter(folder) as writer:
        writer.begin(series, 1_000_000)
        for second in range(seconds):
            writer.append(START_US + second * 1_000_000, [second % 97 * 1.0] * len(series))
            if second % 500 == 0:
                writer.flush()


def _write_steps(folder: Path, seconds: int, *, ranks: int) -> None:
    folder.mkdir()
    step_us = seconds * 1_000_000 // ROWS
    phases_ns = [int(share * step_us * 1000) for share in _WAITING]
    rows = [
        StepRow(number, 1, "TRAIN", START_US + number * step_us, START_US + (number + 1) * step_us, phases_ns)
        for number in range(ROWS)
    ]
    content = HEADER + b"".join(map(encode_row, rows))
    for rank in range(ranks):
        (folder / f"worker_{rank}{SUFFIX}").write_bytes(content)


if __name__ == "__main__":
    main()
