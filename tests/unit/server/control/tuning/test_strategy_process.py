import subprocess
import sys

from trainyard.server.control.tuning import strategy_process


def test_no_library_that_computes_is_loaded_before_its_threads_are_limited() -> None:
    program = f"import sys, {strategy_process.__name__}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy"} & set(run.stdout.split())
