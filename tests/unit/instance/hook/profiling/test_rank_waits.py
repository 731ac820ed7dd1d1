from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.unit.instance.hook.profiling.profiled_program import ProgramRun, run_program, total_ms
from trainyard.formats.profiles.contract import STEPS_VARIABLE, StepPhase

# One of two ranks, of which the second takes longer between its forward and its backward.
RANK = """
    import os, time
    import torch
    import torch.distributed as dist
    from torch import nn

    dist.init_process_group("gloo", f"file://{os.environ['MEETING']}", rank=int(os.environ["RANK"]), world_size=2)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    while True:
        outputs = model(torch.randn(4, 8))
        time.sleep(0.03 * dist.get_rank())
        optimizer.zero_grad()
        outputs.square().mean().backward()
        optimizer.step()
"""


def run_rank(folder: Path, rank: int) -> ProgramRun:
    environment = {"RANK": str(rank), "WORLD_SIZE": "2", "MEETING": str(folder / "meeting"), STEPS_VARIABLE: "20"}
    return run_program(folder / str(rank), RANK, environment=environment)


def test_the_rank_that_others_wait_for_does_not_wait_and_all_end_a_trial_at_the_same_step(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        fast, slow = pool.map(lambda rank: run_rank(tmp_path, rank), range(2))
    assert (fast.code, slow.code) == (0, 0), fast.output + slow.output
    steps, slow_steps = fast.ranks["worker_0"], slow.ranks["worker_1"]
    assert len(steps) == len(slow_steps) == 20
    waited = total_ms(steps, StepPhase.COMMUNICATION)
    assert waited > 0.5 * 20 * 30
    assert waited > 2 * total_ms(slow_steps, StepPhase.COMMUNICATION)
    assert total_ms(slow_steps, StepPhase.OTHER) >= 20 * 30
    # The backward itself is as short on both.
    assert total_ms(steps, StepPhase.BACKWARD) < waited
