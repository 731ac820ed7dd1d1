"""Scripts that make a hook of smdebug's, in a job with rules: a whole agent, a real sandbox, real trainings."""

from pathlib import Path

import pytest

from tests.system.test_agent import World
from tests.system.test_debugger import ONE_THREAD, STOP, debugger, downloaded, notes, standings, world
from trainyard.formats.tensors.contract import Mode
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.link.contract import FrameKind, RuleSpec

__all__ = ["world"]  # the fixture

# As a script of AWS's: two calls of the model for each step of the optimizer, and an evaluation at the end.
SCRIPT = """
import os
import smdebug.pytorch as smd
import torch
from smdebug import modes
from torch import nn

torch.manual_seed(1)
model, criterion = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
hook = smd.Hook.create_from_json_file()
hook.register_hook(model)
hook.register_loss(criterion)
poison = int(os.environ.get("POISON", "-1"))
hook.set_mode(modes.TRAIN)
for step in range(10):
    for half in range(2):
        x = torch.randn(10, 8)
        if 2 * step + half == poison:
            x[3, 2] = float("nan")
        criterion(model(x), (x[:, 0] > 0).long()).backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
hook.set_mode(modes.EVAL)
with torch.no_grad():
    criterion(model(x), (x[:, 0] > 0).long())
print("trained", smd.get_hook() is hook, flush=True)
"""
BOOSTING = """
import numpy, xgboost

x = numpy.random.default_rng(1).normal(size=(80, 3))
data = xgboost.DMatrix(x, x[:, 0])
xgboost.train({"nthread": 1, "max_depth": 6}, data, 12, evals=[(data, "train")], verbose_eval=False)
print("boosted", flush=True)
"""


def test_the_hook_of_a_script_has_the_place_and_the_rules_of_the_one_of_the_job(world: World, tmp_path: Path) -> None:
    rules = [RuleSpec("vanishing", "VanishingGradient"), RuleSpec("nan", "NotANumber")]
    verdict = world.run(SCRIPT, debugger=debugger(*rules), environment=ONE_THREAD)
    assert (verdict["outcome"], world.log()) == ("completed", ["trained True"]), notes(world)
    assert {name: told["status"] for name, told in standings(world).items()} == dict.fromkeys(
        ("vanishing", "nan"), "NoIssuesFound"
    )
    assert standings(world)["nan"]["judged"] == 21
    trial = create_trial(downloaded(world, tmp_path / "trial"))
    assert (trial.steps(Mode.TRAIN), trial.steps(Mode.EVAL)) == ([0, 10], [0]), "a call of the model is a step"
    assert trial.tensor("gradient/Sequential_0.weight").steps() == [0, 10]
    assert "loss_output_0" not in trial.tensor_names(known=True), "which is how the hook of the job names it"


@pytest.mark.flow
def test_a_rule_stops_a_script_with_a_hook_of_its_own(world: World) -> None:
    rule = RuleSpec("nan", "NotANumber", actions=STOP)
    world.run(SCRIPT, debugger=debugger(rule), environment={**ONE_THREAD, "POISON": "7"})
    assert standings(world)["nan"]["status"] == "IssuesFound"
    found = next(payload["finding"] for payload in world.payloads(FrameKind.RULE) if payload["finding"])
    assert (found["step"], found["tensor"]) == (7, "Sequential_input_0")


def test_boosting_that_knows_nothing_of_it_is_captured_and_judged(world: World, tmp_path: Path) -> None:
    config = {"HookParameters": {"save_interval": "5"}, "CollectionConfigurations": [{"CollectionName": "trees"}]}
    rules = [RuleSpec("deep", "TreeDepth", {"depth": "2"}), RuleSpec("decreasing", "LossNotDecreasing")]
    verdict = world.run(BOOSTING, debugger=debugger(*rules, hook=config), environment=ONE_THREAD)
    assert (verdict["outcome"], world.log()) == ("completed", ["boosted"]), notes(world)
    assert standings(world)["deep"]["status"] == "IssuesFound", standings(world)
    assert standings(world)["decreasing"]["status"] == "NoIssuesFound", standings(world)
    trial = create_trial(downloaded(world, tmp_path / "trial"))
    assert trial.steps() == [0, 5, 10]
    assert trial.tensor("trees/Node").value(5).max() > 2
