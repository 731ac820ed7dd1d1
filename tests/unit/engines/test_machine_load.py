from pathlib import Path

import pytest

from trainyard.engines.machine_load import LoadMeter

MEMORY = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"


def write(proc: Path, *, busy: int, idle: int) -> None:
    (proc / "stat").write_text(f"cpu  {busy} 0 0 {idle} 7 0 0 0 0 0\ncpu0 1 1 1 1\n")
    (proc / "meminfo").write_text(MEMORY)


def test_busy_cores_are_those_since_the_last_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([100.0, 102.0, 102.1, 104.0])
    monkeypatch.setattr("trainyard.engines.machine_load.time.monotonic", lambda: next(moments))
    monkeypatch.setattr("trainyard.engines.machine_load.os.sysconf", lambda _: 100)
    write(tmp_path, busy=1000, idle=0)
    machine = LoadMeter(tmp_path)
    write(tmp_path, busy=1300, idle=100)
    assert machine.measure().cpus == 1.5
    write(tmp_path, busy=9999, idle=100)
    assert machine.measure().cpus == 1.5, "a tenth of a second is too short to measure"
    write(tmp_path, busy=1300, idle=500)
    assert machine.measure().cpus == 0.0


def test_memory_in_use_is_what_is_not_available(tmp_path: Path) -> None:
    write(tmp_path, busy=0, idle=0)
    assert LoadMeter(tmp_path).measure().memory_bytes == 600 * 1024


def test_the_real_machine_has_a_load() -> None:
    assert LoadMeter().measure().memory_bytes > 0
