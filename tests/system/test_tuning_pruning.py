"""Rules of the debugger that end the trials of a tuning job, on a real yard."""

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from tests.system.tuners import Tuner

# Runs for long after it has diverged, so that only the rule can end it in time.
DIVERGES = """
import torch
model, rate = torch.nn.Linear(4, 1), float(tuned["rate"])
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
for step in range(20 if rate < 1 else 2000):
    optimizer.zero_grad()
    loss = torch.nn.MSELoss()(model(torch.ones(8, 4)), torch.ones(8, 1))
    loss.backward()
    optimizer.step()
    if step < 3:
        report(1.0)
    time.sleep(0.1 if rate > 1 else 0)
"""


def test_a_trial_that_a_rule_finds_fault_with_is_stopped_and_is_never_the_best(administrator: User) -> None:
    tuner = Tuner(Trainee(administrator.add_user("pruner")).prepare())
    asked = tuner.request("pruned", DIVERGES, ranges={"rate": ["0.01", "1e30"]}, strategy="Grid")
    tags = [{"Key": "trainyard:prune-on", "Value": "NotANumber"}]
    tuner.sagemaker.create_hyper_parameter_tuning_job(**asked, Tags=tags)
    told = tuner.finish("pruned")
    trials = {each["TunedHyperParameters"]["rate"]: each for each in tuner.trials("pruned")}
    assert told["HyperParameterTuningJobStatus"] == "Completed"
    assert (trials["1e30"]["TrainingJobStatus"], trials["1e30"]["ObjectiveStatus"]) == ("Stopped", "Failed")
    assert told["BestTrainingJob"]["TrainingJobName"] == trials["0.01"]["TrainingJobName"]
    job = tuner.sagemaker.describe_training_job(TrainingJobName=trials["1e30"]["TrainingJobName"])
    (rule,) = job["DebugRuleEvaluationStatuses"]
    assert (rule["RuleConfigurationName"], rule["RuleEvaluationStatus"]) == ("NotANumber", "IssuesFound")
