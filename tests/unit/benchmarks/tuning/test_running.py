import json
from pathlib import Path

import pytest

from benchmarks.tuning.functions import DEVELOPMENT
from benchmarks.tuning.running import EVALUATIONS, main, read_lines
from benchmarks.tuning.studies import gather

BRANIN = tuple(each for each in DEVELOPMENT if each.name == "branin")
CHOSEN = ["--engines", "random", "--problems", "branin", "--modes", "sequential", "--seeds", "2"]


def test_a_second_run_does_only_what_is_missing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "runs.jsonl"
    main([*CHOSEN, "--results", str(results)])
    first, second = results.read_text().splitlines()
    results.write_text(f"{first}\n{second[:40]}\n")  # as it is when a run is ended while it writes
    capfd.readouterr()
    main([*CHOSEN, "--results", str(results)])
    assert "1 to run" in capfd.readouterr().out
    assert [json.loads(each) for each in results.read_text().splitlines() if each.endswith("}")][-1]["seed"] == 2


def test_studies_of_another_version_or_of_a_changed_problem_do_not_count(tmp_path: Path) -> None:
    results = tmp_path / "runs.jsonl"
    main([*CHOSEN, "--results", str(results)])
    lines = [line for line in read_lines(results) if line.get("problem") == "branin"]
    older = [{**line, "version": "older"} for line in lines]
    changed = [{**line, "digest": "changed", "seed": 9} for line in lines]
    counting = gather([*older, *changed, *lines], BRANIN)
    assert counting.studies["random", "branin", "sequential"].shape == (2, EVALUATIONS)
