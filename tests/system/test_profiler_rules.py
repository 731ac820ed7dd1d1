"""Real scripts with a planted fault each: the profiler rules find it, and nothing in a script without one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.profiled_programs import run_profiled
from trainyard.insight.rules.profiler.catalog import report_rules


@pytest.fixture
def on_disk() -> Iterator[str]:
    # Temporary folders of tests may be in memory.
    with TemporaryDirectory(dir="/var/tmp") as folder:
        yield str(Path(folder) / "file")


@pytest.mark.parametrize(
    ("program", "options", "ranks", "rules"),
    [
        ("slow_loader", [], 1, {"IOBottleneck", "Dataloader"}),
        ("augmentation", [], 1, {"CPUBottleneck"}),
        ("many_workers", [], 1, {"Dataloader"}),
        ("disk_reads", ["--file", "FILE"], 1, {"IOBottleneck"}),
        ("tiny_batch", [], 1, {"BatchSize"}),
        ("slow_rank", [], 2, {"LoadBalancing"}),
        ("healthy", [], 1, set()),
        ("checkpoints", ["--file", "FILE", "--every", "100000"], 1, set()),
    ],
)
def test_the_rules_find_what_is_wrong_with_a_script(
    tmp_path: Path, on_disk: str, program: str, options: Sequence[str], ranks: int, rules: set[str]
) -> None:
    words = [on_disk if word == "FILE" else word for word in options]
    profile = run_profiled(tmp_path, f"{program}.py", words, ranks=ranks)
    found = {name: [each.message for each in rule.check(profile).findings] for name, rule in report_rules({})}
    triggered = {name for name, messages in found.items() if messages}
    assert rules <= triggered, found
    # A fault often has more than one symptom; a script without one has none.
    assert rules or not triggered, found
