import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.instance.hook.profiling.profiled_program import ProgramRun, run_program
from trainyard.formats.profiles.contract import CHANGES_VARIABLE, STEPS_VARIABLE, ProgramChange
from trainyard.instance.hook.profiling.trial import AppliedChanges, read_trial

# A training that would never end.
PROGRAM = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    images = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(2, (64,)))
    loader = DataLoader(images, batch_size=8, shuffle=True, num_workers=1)
    others = DataLoader(images, batch_size=8)

    def evaluate():
        model.eval()
        with torch.no_grad():
            for inputs, labels in others:
                model(inputs)
        model.train()

    def train():
        while True:
            for inputs, labels in loader:
                outputs = model(inputs)
                loss = nn.functional.cross_entropy(outputs, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            evaluate()
"""


def run_trial(
    folder: Path, ending: str, *, steps: int = 12, changes: Mapping[str, str] | None = None, program: str = PROGRAM
) -> ProgramRun:
    environment = {STEPS_VARIABLE: str(steps), CHANGES_VARIABLE: json.dumps(changes or {})}
    return run_program(folder, program + ending, environment=environment)


def test_a_trial_ends_after_its_steps_as_a_success(tmp_path: Path) -> None:
    run = run_trial(
        tmp_path,
        """
    import atexit
    atexit.register(lambda: print("cleaned up"))
    try:
        train()
    finally:
        print("left the loop")
    """,
        changes={"batch_size": "16", "pin_memory": "true", "colour": "blue"},
    )
    assert (run.code, run.output.split("\n")[:2]) == (0, ["left the loop", "cleaned up"])
    assert len(run.steps) == 12
    assert run.facts["changes"] == {"batch_size": "16"}
    assert run.notes == [
        "The trial cannot change \"colour\" to 'blue': it is no change of a program.",
        "The trial did not change pin_memory: there is no GPU.",
    ]


def test_a_program_that_catches_everything_ends_all_the_same(tmp_path: Path) -> None:
    run = run_trial(
        tmp_path,
        """
    while True:
        try:
            try:
                train()
            except Exception:
                print("an error")
        except BaseException:
            print("caught")
    """,
    )
    assert run.code == 0
    assert run.output == "caught\n"
    # It ends for good where the next step begins.
    assert len(run.steps) == 13


def test_a_training_in_another_thread_ends_the_program(tmp_path: Path) -> None:
    run = run_trial(
        tmp_path,
        """
    import threading
    threading.Thread(target=train).start()
    """,
    )
    assert run.code == 0
    assert len(run.steps) == 12


def test_a_refused_change_was_not_applied() -> None:
    notes: list[str] = []
    changes = AppliedChanges({ProgramChange.BATCH_SIZE: "8"}, note=notes.append)
    changes.apply(ProgramChange.BATCH_SIZE, "8")
    assert changes.facts() == {"batch_size": "8"}
    changes.refuse(ProgramChange.BATCH_SIZE, "another loader is fixed")
    assert changes.facts() == {}
    changes.note_missing()
    changes.note_missing()
    assert notes == ["The trial did not change batch_size: another loader is fixed."]


@pytest.mark.parametrize("steps", ["", "0", "-3", "many"])
def test_an_invalid_number_of_steps_ends_nothing(steps: str) -> None:
    assert read_trial({STEPS_VARIABLE: steps}, note=pytest.fail).steps is None


def test_changes_that_are_no_object_are_noted() -> None:
    notes: list[str] = []
    assert not read_trial({CHANGES_VARIABLE: "[1"}, note=notes.append).changes
    assert len(notes) == 1
