from dataclasses import replace

import pytest

from trainyard.cli.profiling.profile_text import advice_lines, verdict_blocks
from trainyard.cli.terminal.blocks import print_blocks
from trainyard.insight.profiling.verdict.contract import (
    Bottleneck,
    BottleneckKind,
    ProfileAdvice,
    ProfileCosts,
    ProfileVerdict,
)


def test_figures_are_rounded_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    verdict = ProfileVerdict(
        "Data loading: the program waits for data 59 % of the time.",
        Bottleneck(BottleneckKind.DATA_LOADING, "Data loading", ["The loader of Images has 8 workers."], 0.59, 2.9876),
        [Bottleneck(BottleneckKind.CHECKPOINTS, "Checkpoints", [], 0.05, 1.0526)],
        costs=ProfileCosts(0.0019216, 16652.7, "USD", joules_per_step=0.12345),
    )
    print_blocks(list(verdict_blocks(verdict)))
    shown = capsys.readouterr().out
    assert "Costs: 1.92 ms per step, 16,653 samples/s, 0.123 J per step" in shown
    assert "5%    1.05x" in shown


def test_advice_says_what_it_brings_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    advice = ProfileAdvice("Use 1 data worker instead of 8", "There are 2 cores.", BottleneckKind.TOO_MANY_WORKERS)
    print_blocks(list(advice_lines(2, replace(advice, max_speedup=2.9876))))
    assert capsys.readouterr().out.startswith("2. Use 1 data worker instead of 8, at most 3.0x as fast")
