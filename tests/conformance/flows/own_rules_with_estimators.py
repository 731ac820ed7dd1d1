"""A custom rule evaluates two jobs: it finds something in one and stops it, and finds nothing in the other.

Its argument is the package of the estimator: sagemaker or trainyard.
"""

import importlib
import sys
import tempfile
from typing import Any

estimating: Any = importlib.import_module("estimating")

TRAIN = """
import argparse, time
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--factor", type=float)
options = parser.parse_args()
torch.manual_seed(1)
model, measure = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(options.steps):
    optimizer.zero_grad()
    (options.factor * measure(model(torch.randn(8, 4)), torch.ones(8, 1))).backward()
    optimizer.step()
    time.sleep(0.01)
print("trained to the end")
"""

RULE = """
from smdebug.rules import Rule


class GradientTooLarge(Rule):
    def __init__(self, base_trial, threshold="10"):
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        for name in self.base_trial.tensor_names(collection="gradients"):
            if self.base_trial.tensor(name).reduction_value(step, "mean", abs=True) > self.threshold:
                return True
        return False
"""
EVALUATOR = "864354269164.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rule-evaluator:latest"


def main(package: str, folder: str) -> None:
    kit = estimating.kit_of(package, folder)
    file = kit.folder / "my_rules.py"
    file.write_text(RULE)
    assert judged(kit, str(file), factor=1.0, steps=50) == ("Completed", "NoIssuesFound")
    assert judged(kit, str(file), factor=1000.0, steps=100_000) == ("Stopped", "IssuesFound")


def judged(kit: Any, source: str, *, factor: float, steps: int) -> tuple[str, str]:
    """Return how a job ends, and the final state of the rule."""
    configs, collection = kit.of("debugger", "rule_configs"), kit.of("debugger", "CollectionConfig")
    rule = kit.of("debugger", "Rule").custom(
        name="GradientTooLarge",
        image_uri=EVALUATOR,
        instance_type="ml.t3.medium",
        volume_size_in_gb=10,
        source=source,
        rule_to_invoke="GradientTooLarge",
        rule_parameters={"threshold": "20"},
        collections_to_save=[collection("gradients", {"save_interval": "1"})],
        actions=configs.ActionList(configs.StopTraining()),
    )
    estimator = kit.estimator(TRAIN, rules=[rule], hyperparameters={"factor": factor, "steps": steps})
    estimator.fit(logs=False)
    (told,) = estimator.latest_training_job.rule_job_summary()
    print(told)
    return estimator.latest_training_job.describe()["TrainingJobStatus"], told["RuleEvaluationStatus"]


with tempfile.TemporaryDirectory() as own:
    main(sys.argv[1], own)
