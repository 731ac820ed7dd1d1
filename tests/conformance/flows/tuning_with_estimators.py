"""Tuning with the tuner of either package: several algorithms, every strategy, warm starts, and every kind of end."""

import importlib
import sys
import tempfile
import uuid
from typing import Any

estimating: Any = importlib.import_module("estimating")

METRICS = [{"Name": "score", "Regex": "score=([-0-9.e]+)"}]
# The score is best at rate 0.3; categories arrive as text, and integers as integers.
SCORE = """
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--depth", type=int, default=3)
parser.add_argument("--kind", choices=["plain", "fancy"], default="plain")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--pause", type=float, default=0)
args = parser.parse_args()
best = 1 - abs(args.rate - 0.3) - 0.01 * args.depth
for epoch in range(1, args.epochs + 1):
    print(f"score={best * epoch / args.epochs}", flush=True)
    time.sleep(args.pause)
"""


def main(package: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kit = estimating.kit_of(package, folder)
        tunes_several_algorithms(kit)
        first = tunes_one_and_attaches(kit)
        starts_warm(kit, first)
        starts_from_training_jobs(kit)
        repeats_with_a_seed(kit)
        walks_a_grid(kit)
        gives_more_to_the_better(kit)
        ends_when_the_target_is_reached(kit)
        is_stopped(kit)


def tuner(kit: Any, estimator: Any, *names: str, **options: Any) -> Any:
    ranges = {
        "rate": kit.of("tuner", "ContinuousParameter")(0.0, 1.0),
        "depth": kit.of("tuner", "IntegerParameter")(1, 4),
        "kind": kit.of("tuner", "CategoricalParameter")(["plain", "fancy"]),
    }
    chosen = {name: ranges[name] for name in names}
    asked = {"metric_definitions": METRICS, "max_jobs": 4, "max_parallel_jobs": 2} | options
    return kit.of("tuner", "HyperparameterTuner")(estimator, "score", chosen, **asked)


def fit(made: Any, *inputs: Any, **options: Any) -> None:
    """Use a unique name: the sagemaker SDK generates equal names within a minute."""
    made.fit(*inputs, job_name=f"tuned-{uuid.uuid4().hex[:8]}", **options)


def described(kit: Any, made: Any, status: str = "Completed") -> Any:
    told = made.describe()
    assert told["HyperParameterTuningJobStatus"] == status, told
    return told


def tunes_several_algorithms(kit: Any) -> None:
    real, whole = kit.of("tuner", "ContinuousParameter"), kit.of("tuner", "IntegerParameter")
    made = kit.of("tuner", "HyperparameterTuner").create(
        estimator_dict={"net": kit.estimator(SCORE), "trees": kit.estimator(SCORE, hyperparameters={"rate": 0.9})},
        objective_metric_name_dict={"net": "score", "trees": "score"},
        hyperparameter_ranges_dict={"net": {"rate": real(0.0, 1.0)}, "trees": {"depth": whole(1, 4)}},
        metric_definitions_dict={"net": METRICS, "trees": METRICS},
        max_jobs=8,
        max_parallel_jobs=4,
    )
    fit(made, {}, include_cls_metadata={})
    told = described(kit, made)
    assert [each["DefinitionName"] for each in told["TrainingJobDefinitions"]] == ["net", "trees"]
    table = made.analytics().dataframe()
    assert set(table["TrainingJobDefinitionName"]) == {"net", "trees"}, table
    assert len(table) == 8
    of_net = table[table["TrainingJobDefinitionName"] == "net"]
    assert of_net["rate"].notna().all()
    assert of_net["depth"].isna().all()
    assert told["BestTrainingJob"]["TrainingJobDefinitionName"] == "net", "the other algorithm has a bad fixed rate"
    assert set(made.analytics().tuning_ranges) == {"net", "trees"}
    attached = kit.of("tuner", "HyperparameterTuner").attach(made.latest_tuning_job.name, kit.session)
    assert set(attached.estimator_dict) == {"net", "trees"}
    best = attached.best_estimator()
    assert best.latest_training_job.name == made.best_training_job()


def tunes_one_and_attaches(kit: Any) -> Any:
    estimator = kit.estimator(SCORE, hyperparameters={"epochs": 2, "kind": "plain"})
    made = tuner(kit, estimator, "rate", "depth", "kind", max_jobs=6, tags=[{"Key": "team", "Value": "a"}])
    fit(made)
    told = described(kit, made)
    name = made.latest_tuning_job.name
    static = told["TrainingJobDefinition"]["StaticHyperParameters"]
    assert (static["epochs"], static["_tuning_objective_metric"]) == ("2", "score")
    assert "kind" not in static, "a tuned hyperparameter is not static"
    assert told["TrainingJobStatusCounters"]["Completed"] == told["ObjectiveStatusCounters"]["Succeeded"] == 6
    table = made.analytics().dataframe()
    assert set(table["kind"]) <= {'"plain"', '"fancy"'}
    assert all(each.startswith(f"{name}-") for each in table["TrainingJobName"])
    attached = kit.of("tuner", "HyperparameterTuner").attach(name, kit.session)
    assert type(attached.estimator).__name__ == "PyTorch"
    assert (attached.max_jobs, attached.objective_metric_name, attached.strategy) == (6, "score", "Bayesian")
    best = attached.best_estimator()
    best_rate = table.sort_values("FinalObjectiveValue").iloc[-1]["rate"]
    assert float(best.hyperparameters()["rate"]) == best_rate
    child = kit.session.describe_training_job(made.best_training_job())
    assert child["TuningJobArn"] == told["HyperParameterTuningJobArn"]
    return made


def starts_warm(kit: Any, parent: Any) -> None:
    name = parent.latest_tuning_job.name
    same = parent.identical_dataset_and_algorithm_tuner()
    same.max_jobs = 2
    # The sagemaker SDK loses them.
    if same.metric_definitions is None:
        same.metric_definitions = METRICS
    fit(same)
    told = described(kit, same)
    assert told["WarmStartConfig"]["WarmStartType"] == "IdenticalDataAndAlgorithm"
    assert told["OverallBestTrainingJob"]["TrainingJobName"]
    other = kit.estimator(SCORE, hyperparameters={"epochs": 2, "kind": "plain", "depth": 2})
    start = kit.of("tuner", "WarmStartConfig")(
        warm_start_type=kit.of("tuner", "WarmStartTypes").TRANSFER_LEARNING,
        parents={name, same.latest_tuning_job.name},
    )
    moved = tuner(kit, other, "rate", "kind", max_jobs=2, warm_start_config=start)
    fit(moved)
    told = described(kit, moved)
    assert len(told["WarmStartConfig"]["ParentHyperParameterTuningJobs"]) == 2
    assert "OverallBestTrainingJob" not in told, "only identical data and algorithms have an overall best"


def starts_from_training_jobs(kit: Any) -> None:
    """Only our SDK can name this; other clients see an ordinary tuning job."""
    if kit.package != "trainyard":
        return
    names = []
    for rate in (0.2, 0.9):
        job = kit.estimator(SCORE, hyperparameters={"rate": rate, "kind": "plain"}, metric_definitions=METRICS)
        job.fit(logs=False)
        names.append(job.latest_training_job.name)
    real, category = kit.of("tuner", "ContinuousParameter"), kit.of("tuner", "CategoricalParameter")
    ranges = {"rate": real(0.0, 1.0), "kind": category(["plain", "fancy"])}
    found = kit.of("tuner", "HyperparameterTuner").from_training_jobs(
        names, "score", ranges, tuning_job_name=f"adopted-{uuid.uuid4().hex[:8]}", sagemaker_session=kit.session
    )
    assert found.best_training_job() == names[0]
    child = found.identical_dataset_and_algorithm_tuner(max_jobs=2)
    fit(child)
    told = described(kit, child)
    assert told["OverallBestTrainingJob"]["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] >= 0.87
    assert set(child.analytics().dataframe()["kind"]) <= {'"plain"', '"fancy"'}


def repeats_with_a_seed(kit: Any) -> None:
    tried = []
    for _ in range(2):
        made = tuner(kit, kit.estimator(SCORE), "rate", strategy="Random", random_seed=7, max_jobs=3)
        fit(made)
        described(kit, made)
        tried.append(sorted(made.analytics().dataframe()["rate"]))
    assert tried[0] == tried[1], tried


def walks_a_grid(kit: Any) -> None:
    estimator = kit.estimator(SCORE, hyperparameters={"rate": 0.5})
    made = tuner(kit, estimator, "kind", strategy="Grid", max_jobs=2)
    fit(made)
    described(kit, made)
    assert sorted(made.analytics().dataframe()["kind"]) == ['"fancy"', '"plain"']


def gives_more_to_the_better(kit: Any) -> None:
    hyperband = kit.of("tuner", "HyperbandStrategyConfig")(max_resource=9, min_resource=1)
    strategy = kit.of("tuner", "StrategyConfig")(hyperband_strategy_config=hyperband)
    estimator = kit.estimator(SCORE, hyperparameters={"epochs": 9, "pause": 0.3})
    # Suggestions improve over time, so each of a few trials may be the best so far and run to its end.
    made = tuner(
        kit, estimator, "rate", strategy="Hyperband", strategy_config=strategy, max_jobs=24, max_parallel_jobs=4
    )
    fit(made)
    told = described(kit, made)
    assert told["HyperParameterTuningJobConfig"]["StrategyConfig"]["HyperbandStrategyConfig"]["MaxResource"] == 9
    assert told["TrainingJobStatusCounters"]["Stopped"] > 0, told["TrainingJobStatusCounters"]


def ends_when_the_target_is_reached(kit: Any) -> None:
    criteria = kit.of("tuner", "TuningJobCompletionCriteriaConfig")(target_objective_metric_value=0.1)
    made = tuner(kit, kit.estimator(SCORE), "rate", completion_criteria_config=criteria, max_jobs=50)
    fit(made)
    counters = described(kit, made)["TrainingJobStatusCounters"]
    assert sum(counters.values()) < 50, counters


def is_stopped(kit: Any) -> None:
    estimator = kit.estimator(SCORE, hyperparameters={"epochs": 600, "pause": 1})
    made = tuner(kit, estimator, "rate", max_jobs=10)
    fit(made, wait=False)
    made.stop_tuning_job()
    made.wait()
    counters = described(kit, made, "Stopped")["TrainingJobStatusCounters"]
    assert counters["InProgress"] == 0, counters


if __name__ == "__main__":
    main(sys.argv[1])
