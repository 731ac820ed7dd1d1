import inspect
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from tests.unit.tuning_answers import definition, description
from trainyard._sdk.tuning.request import TuningOptions
from trainyard.debugger import Rule, rule_configs
from trainyard.estimator import Estimator
from trainyard.foundation.errors import InvalidRequest
from trainyard.instance_group import InstanceGroup
from trainyard.pytorch import PyTorch
from trainyard.session import Session
from trainyard.tuner import (
    CategoricalParameter,
    ContinuousParameter,
    HyperbandStrategyConfig,
    HyperparameterTuner,
    InstanceConfig,
    IntegerParameter,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    WarmStartTypes,
    create_transfer_learning_tuner,
)

IMAGE = "433757028032.dkr.ecr.us-west-2.amazonaws.com/xgboost:1"
ROLE = "arn:aws:iam::123456789012:role/R"
METRICS = [{"Name": "acc", "Regex": "acc=(.*)"}]
ORDER = [
    "estimator",
    "objective_metric_name",
    "hyperparameter_ranges",
    "metric_definitions",
    "strategy",
    "objective_type",
    "max_jobs",
    "max_parallel_jobs",
    "max_runtime_in_seconds",
    "tags",
    "base_tuning_job_name",
    "warm_start_config",
    "strategy_config",
    "completion_criteria_config",
    "early_stopping_type",
    "estimator_name",
    "random_seed",
    "autotune",
    "hyperparameters_to_keep_static",
]
LR = {"lr": ContinuousParameter(0.001, 0.1)}


@pytest.fixture
def api() -> RecordingApi:
    return RecordingApi(ListTags={"Tags": []}, DescribeHyperParameterTuningJob=description())


@pytest.fixture
def session(api: RecordingApi) -> Session:
    return Session(api=api, region="us-west-2")


@pytest.fixture
def algorithm(session: Session) -> Estimator:
    given = {"rounds": 10, "lr": 0.5}
    return Estimator(IMAGE, ROLE, 1, "ml.m5.large", sagemaker_session=session, hyperparameters=given)


@pytest.fixture
def network(session: Session, tmp_path: Path) -> PyTorch:
    (tmp_path / "train.py").write_text("print('trains')")
    return PyTorch(
        "train.py",
        "2.8.0",
        "py312",
        str(tmp_path),
        {"epochs": 3, "opt": "adam"},
        role=ROLE,
        instance_type="ml.m5.large",
        metric_definitions=METRICS,
        sagemaker_session=session,
    )


def asked(api: RecordingApi) -> dict[str, Any]:
    return api.only("CreateHyperParameterTuningJob")


def test_the_order_of_the_parameters_is_that_of_the_sagemaker_sdk() -> None:
    parameters = inspect.signature(HyperparameterTuner).parameters.values()
    assert [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD] == ORDER


def test_a_tuning_job_asks_for_the_training_jobs_of_its_estimator(api: RecordingApi, algorithm: Estimator) -> None:
    tuner = HyperparameterTuner(algorithm, "acc", LR, METRICS, max_jobs=20, max_parallel_jobs=3)

    tuner.fit({"train": "s3://bucket/train"}, wait=False, job_name="study")

    assert asked(api) == {
        "HyperParameterTuningJobName": "study",
        "HyperParameterTuningJobConfig": {
            "Strategy": "Bayesian",
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 20, "MaxParallelTrainingJobs": 3},
            "TrainingJobEarlyStoppingType": "Off",
            "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "acc"},
            "ParameterRanges": {
                "ContinuousParameterRanges": [
                    {"Name": "lr", "MinValue": "0.001", "MaxValue": "0.1", "ScalingType": "Auto"}
                ],
                "CategoricalParameterRanges": [],
                "IntegerParameterRanges": [],
            },
        },
        "TrainingJobDefinition": {
            "RoleArn": ROLE,
            "InputDataConfig": [
                {
                    "ChannelName": "train",
                    "DataSource": {
                        "S3DataSource": {
                            "S3DataType": "S3Prefix",
                            "S3Uri": "s3://bucket/train",
                            "S3DataDistributionType": "FullyReplicated",
                        }
                    },
                }
            ],
            "OutputDataConfig": {"S3OutputPath": "s3://sagemaker-us-west-2-123456789012/"},
            "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "MetricDefinitions": METRICS,
            },
            "HyperParameterTuningResourceConfig": {
                "InstanceCount": 1,
                "InstanceType": "ml.m5.large",
                "VolumeSizeInGB": 30,
            },
            "StaticHyperParameters": {"rounds": "10"},
        },
    }


def test_categories_of_a_framework_are_json_as_its_script_reads_them(api: RecordingApi, network: PyTorch) -> None:
    HyperparameterTuner(network, "acc", {"opt": CategoricalParameter(["adam", "sgd"])}).fit(wait=False)

    config, trained = asked(api)["HyperParameterTuningJobConfig"], asked(api)["TrainingJobDefinition"]
    assert config["ParameterRanges"]["CategoricalParameterRanges"] == [{"Name": "opt", "Values": ['"adam"', '"sgd"']}]
    static = trained["StaticHyperParameters"]
    assert (static["epochs"], static["sagemaker_program"]) == ("3", '"train.py"')
    assert "opt" not in static
    assert static["sagemaker_estimator_class_name"] == '"PyTorch"'
    assert static["sagemaker_estimator_module"] == '"sagemaker.pytorch"'


def test_metrics_of_the_estimator_are_not_forgotten(api: RecordingApi, network: PyTorch) -> None:
    HyperparameterTuner(network, "acc", LR).fit(wait=False)
    assert asked(api)["TrainingJobDefinition"]["AlgorithmSpecification"]["MetricDefinitions"] == METRICS


def test_a_name_fits_into_32_characters(api: RecordingApi, algorithm: Estimator) -> None:
    HyperparameterTuner(algorithm, "acc", LR, base_tuning_job_name="a-name-that-is-long-in-itself").fit(wait=False)
    name = asked(api)["HyperParameterTuningJobName"]
    assert len(name) == 32
    assert name.startswith("a-name-that-is-lon-2")


def test_every_option_is_asked_for(api: RecordingApi, algorithm: Estimator) -> None:
    tuner = HyperparameterTuner(
        algorithm,
        "acc",
        LR,
        strategy="Hyperband",
        objective_type="Minimize",
        max_runtime_in_seconds=600,
        tags={"team": "a"},
        warm_start_config=WarmStartConfig(WarmStartTypes.TRANSFER_LEARNING, {"b", "a"}),
        strategy_config=StrategyConfig(HyperbandStrategyConfig(max_resource=27, min_resource=1)),
        completion_criteria_config=TuningJobCompletionCriteriaConfig(5, True, 0.1),
        random_seed=3,
        prune_on=["NotANumber", "VanishingGradient"],
    )
    tuner.fit(wait=False)

    request = asked(api)
    assert request["HyperParameterTuningJobConfig"] | {"ParameterRanges": {}} == {
        "Strategy": "Hyperband",
        "ResourceLimits": {"MaxParallelTrainingJobs": 1, "MaxRuntimeInSeconds": 600},
        "TrainingJobEarlyStoppingType": "Off",
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "acc"},
        "RandomSeed": 3,
        "StrategyConfig": {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 27}},
        "TuningJobCompletionCriteria": {
            "BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 5},
            "ConvergenceDetected": {"CompleteOnConvergence": "Enabled"},
            "TargetObjectiveMetricValue": 0.1,
        },
        "ParameterRanges": {},
    }
    assert request["WarmStartConfig"] == {
        "WarmStartType": "TransferLearning",
        "ParentHyperParameterTuningJobs": [
            {"HyperParameterTuningJobName": "a"},
            {"HyperParameterTuningJobName": "b"},
        ],
    }
    assert request["Tags"] == [
        {"Key": "team", "Value": "a"},
        {"Key": "trainyard:prune-on", "Value": "NotANumber VanishingGradient"},
    ]


def test_stopping_by_learning_curves_is_auto_with_a_tag(api: RecordingApi, algorithm: Estimator) -> None:
    HyperparameterTuner(algorithm, "acc", LR, early_stopping_type="Curve").fit(wait=False)
    assert asked(api)["HyperParameterTuningJobConfig"]["TrainingJobEarlyStoppingType"] == "Auto"
    assert asked(api)["Tags"] == [{"Key": "trainyard:early-stopping", "Value": "curve"}]


@pytest.mark.parametrize(
    ("options", "most"),
    [({}, 1), ({"strategy": "Grid"}, None), ({"max_runtime_in_seconds": 600}, None), ({"max_jobs": 7}, 7)],
)
def test_one_training_job_is_made_where_nothing_else_limits(
    options: dict[str, Any], most: int | None, algorithm: Estimator
) -> None:
    assert HyperparameterTuner(algorithm, "acc", LR, **options).max_jobs == most


def test_several_estimators_have_names_objectives_and_ranges_of_their_own(
    api: RecordingApi, algorithm: Estimator, network: PyTorch
) -> None:
    tuner = HyperparameterTuner.create(
        {"trees": algorithm, "net": network},
        {"trees": "auc", "net": "acc"},
        {"trees": LR, "net": {"layers": IntegerParameter(1, 8)}},
        {"trees": [{"Name": "auc", "Regex": "auc=(.*)"}]},
        max_jobs=10,
    )
    tuner.fit({"trees": {"train": "s3://bucket/t"}}, include_cls_metadata={}, wait=False, job_name="study")

    request = asked(api)
    assert "TrainingJobDefinition" not in request
    assert "ParameterRanges" not in request["HyperParameterTuningJobConfig"]
    net, trees = request["TrainingJobDefinitions"]
    assert (net["DefinitionName"], net["TuningObjective"]["MetricName"]) == ("net", "acc")
    assert [each["Name"] for each in net["HyperParameterRanges"]["IntegerParameterRanges"]] == ["layers"]
    assert "InputDataConfig" not in net
    assert trees["TuningObjective"] == {"Type": "Maximize", "MetricName": "auc"}
    assert "sagemaker_estimator_class_name" not in trees["StaticHyperParameters"]
    assert [each["ChannelName"] for each in trees["InputDataConfig"]] == ["train"]
    keys = [params["Key"] for name, params in api.asked if name == "PutObject"]
    assert keys == ["study-net/source/sourcedir.tar.gz"]


@pytest.mark.parametrize("metadata", [False, {}, None])
def test_class_metadata_may_be_left_out_in_each_way(metadata: Any, api: RecordingApi, algorithm: Estimator) -> None:
    tuner = HyperparameterTuner.create({"a": algorithm}, {"a": "acc"}, {"a": LR})
    tuner.fit(include_cls_metadata=metadata, wait=False)
    (only,) = asked(api)["TrainingJobDefinitions"]
    assert only["StaticHyperParameters"] == {"rounds": "10"}


def test_keys_other_than_the_names_of_the_estimators_are_refused(algorithm: Estimator) -> None:
    with pytest.raises(InvalidRequest, match="objective_metric_name_dict has nothing for b; the estimators are a, b"):
        HyperparameterTuner.create({"a": algorithm, "b": algorithm}, {"a": "acc"}, {"a": LR, "b": LR})
    tuner = HyperparameterTuner.create({"a": algorithm}, {"a": "acc"}, {"a": LR})
    with pytest.raises(InvalidRequest, match="inputs must be a mapping with the names of the estimators: a"):
        tuner.fit("s3://bucket/t")
    with pytest.raises(InvalidRequest, match="at least one estimator"):
        HyperparameterTuner.create({}, {}, {})


def test_autotune_hints_at_hyperparameters_of_the_users_own(api: RecordingApi, network: PyTorch) -> None:
    HyperparameterTuner(
        network, "acc", None, autotune=True, hyperparameters_to_keep_static=["epochs"], max_parallel_jobs=2
    ).fit(wait=False)
    request = asked(api)
    assert request["Autotune"] == {"Mode": "Enabled"}
    ranges = request["HyperParameterTuningJobConfig"]["ParameterRanges"]
    assert ranges["AutoParameters"] == [{"Name": "opt", "ValueHint": '"adam"'}]
    assert {"epochs", "sagemaker_program"} <= set(request["TrainingJobDefinition"]["StaticHyperParameters"])
    assert "MaxNumberOfTrainingJobs" not in request["HyperParameterTuningJobConfig"]["ResourceLimits"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hyperparameter_ranges": {}}, "hyperparameter_ranges is empty"),
        ({"hyperparameters_to_keep_static": ["x"]}, "needs autotune=True"),
        ({"autotune": True, "hyperparameters_to_keep_static": ["x", "x"]}, "has a name twice"),
        ({"strategy": "TPE"}, 'strategy is "TPE"; it can be Bayesian, Random, Hyperband or Grid'),
        ({"strategy": "Hyperband", "early_stopping_type": "Auto"}, "Hyperband stops training jobs itself"),
    ],
)
def test_impossible_tuning_jobs_are_refused_at_once(options: dict[str, Any], words: str, algorithm: Estimator) -> None:
    given = {"hyperparameter_ranges": LR, **options}
    with pytest.raises(InvalidRequest, match=words):
        HyperparameterTuner(algorithm, "acc", **given)


def test_a_static_name_that_the_estimator_does_not_know_is_refused(algorithm: Estimator) -> None:
    tuner = HyperparameterTuner(algorithm, "acc", LR, autotune=True, hyperparameters_to_keep_static=["epoch"])
    with pytest.raises(InvalidRequest, match="names epoch; the estimator has no value for it"):
        tuner.fit(wait=False)


def test_instances_may_be_others_than_those_of_the_estimator(api: RecordingApi, algorithm: Estimator) -> None:
    tuner = HyperparameterTuner(algorithm, "acc", LR)
    tuner.override_resource_config([InstanceConfig(1, "ml.c5.large"), InstanceConfig(2, "ml.m5.large", 50)])
    tuner.fit(wait=False)
    resources = asked(api)["TrainingJobDefinition"]["HyperParameterTuningResourceConfig"]
    assert resources == {
        "InstanceConfigs": [
            {"InstanceCount": 1, "InstanceType": "ml.c5.large", "VolumeSizeInGB": 30},
            {"InstanceCount": 2, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 50},
        ]
    }


def test_instance_groups_are_asked_for_as_training_jobs_have_them(api: RecordingApi, session: Session) -> None:
    groups = [InstanceGroup("a", "ml.m5.large", 1), InstanceGroup("b", "ml.c5.large", 2)]
    estimator = Estimator(IMAGE, ROLE, sagemaker_session=session, instance_groups=groups)
    HyperparameterTuner(estimator, "acc", LR).fit(wait=False)
    trained = asked(api)["TrainingJobDefinition"]
    assert [group["InstanceGroupName"] for group in trained["ResourceConfig"]["InstanceGroups"]] == ["a", "b"]
    assert "HyperParameterTuningResourceConfig" not in trained


def test_options_that_a_tuning_job_cannot_have_are_named(
    api: RecordingApi, algorithm: Estimator, caplog: pytest.LogCaptureFixture
) -> None:
    algorithm.rules = [Rule.sagemaker(rule_configs.loss_not_decreasing())]
    with caplog.at_level(logging.WARNING):
        HyperparameterTuner(algorithm, "acc", LR).fit(wait=False)
    assert "do not support rules, debugger_hook_config; use prune_on for rules" in caplog.text


def test_an_attached_tuner_is_the_one_that_could_have_made_the_job(api: RecordingApi, session: Session) -> None:
    api.answers["ListTags"] = {
        "Tags": [
            {"Key": "team", "Value": "a"},
            {"Key": "trainyard:early-stopping", "Value": "curve"},
            {"Key": "trainyard:prune-on", "Value": "NotANumber"},
        ]
    }

    tuner = HyperparameterTuner.attach("study", session)

    assert isinstance(tuner.estimator, PyTorch)
    assert tuner.estimator.hyperparameters() == {"epochs": "3"}
    assert (tuner.estimator.entry_point, tuner.estimator.instance_type) == ("train.py", "ml.m5.large")
    assert (tuner.early_stopping_type, tuner.prune_on, tuner.tags) == ("Curve", ("NotANumber",), {"team": "a"})
    assert (tuner.max_jobs, tuner.max_parallel_jobs, tuner.random_seed) == (4, 2, 7)
    assert tuner.hyperparameter_ranges() == description()["HyperParameterTuningJobConfig"]["ParameterRanges"]
    assert tuner.latest_tuning_job is not None
    assert tuner.latest_tuning_job.name == "study"


def test_an_attached_tuner_asks_for_the_same_again(api: RecordingApi, session: Session) -> None:
    HyperparameterTuner.attach("study", session).fit(wait=False, job_name="again")

    request, known = asked(api), description()
    config = known["HyperParameterTuningJobConfig"]
    assert request["HyperParameterTuningJobConfig"] == config
    static = {
        name: text
        for name, text in request["TrainingJobDefinition"]["StaticHyperParameters"].items()
        if name in definition()["StaticHyperParameters"] and name != "sagemaker_estimator_module"
    }
    told = known["TrainingJobDefinition"]["StaticHyperParameters"]
    assert static == {name: told[name] for name in static}
    assert "_tuning_objective_metric" not in request["TrainingJobDefinition"]["StaticHyperParameters"]


# The options that a description contains, each with the options that it needs.
TOLD: dict[str, dict[str, Any]] = {
    "strategy": {"strategy": "Random"},
    "objective_type": {"objective_type": "Minimize"},
    "max_jobs": {"max_jobs": 9},
    "max_parallel_jobs": {"max_parallel_jobs": 3},
    "max_runtime_in_seconds": {"max_runtime_in_seconds": 3600},
    "tags": {"tags": {"team": "a"}},
    "warm_start_config": {"warm_start_config": WarmStartConfig(WarmStartTypes.TRANSFER_LEARNING, {"a", "b"})},
    "strategy_config": {
        "strategy": "Hyperband",
        "strategy_config": StrategyConfig(HyperbandStrategyConfig(max_resource=9, min_resource=2)),
    },
    "completion_criteria_config": {"completion_criteria_config": TuningJobCompletionCriteriaConfig(3, True, 0.5)},
    "early_stopping_type": {"early_stopping_type": "Curve"},
    "random_seed": {"random_seed": 7},
    "autotune": {"autotune": True, "hyperparameters_to_keep_static": ["rounds"]},
    "prune_on": {"prune_on": ("NotANumber", "Overfit")},
}
# Only the names of later jobs depend on it.
NOT_DESCRIBED = {"base_tuning_job_name"}


def test_every_option_is_in_a_description_or_in_the_request_of_a_job() -> None:
    assert {field.name for field in fields(TuningOptions)} == TOLD.keys() | NOT_DESCRIBED


@pytest.fixture(params=TOLD)
def made(request: pytest.FixtureRequest, api: RecordingApi, algorithm: Estimator) -> HyperparameterTuner:
    """Return a tuner with one option and all options of its algorithm. Its tuning job can be described."""
    option = request.param
    assert TOLD[option][option] != getattr(TuningOptions, option), "the option says what it does by default"
    ranges = {**LR, "layers": IntegerParameter(1, 8, "Linear"), "kind": CategoricalParameter(["a", "b"])}
    algorithm.set_hyperparameters(depth=4)
    algorithm.use_spot_instances, algorithm.max_wait, algorithm.max_run = True, 90, 60
    tuner = HyperparameterTuner(algorithm, "acc", ranges, METRICS, **({"max_jobs": 5} | TOLD[option]))
    tuner.override_resource_config([InstanceConfig(2, "ml.c5.xlarge", 31), InstanceConfig(1, "ml.m5.large", 30)])
    tuner.fit(wait=False, job_name="study")
    asked_for = asked(api)
    api.answers["DescribeHyperParameterTuningJob"] = description() | asked_for
    api.answers["ListTags"] = {"Tags": asked_for.get("Tags", [])}
    return tuner


def test_an_attached_tuner_asks_for_every_option_again(
    api: RecordingApi, session: Session, made: HyperparameterTuner
) -> None:
    first = asked(api)
    api.asked.clear()

    HyperparameterTuner.attach("study", session).fit(wait=False, job_name="study")

    assert _sorted_tags(asked(api)) == _sorted_tags(first)


@pytest.mark.parametrize("is_attached", [False, True])
@pytest.mark.parametrize("start", ["identical_dataset_and_algorithm_tuner", "transfer_learning_tuner"])
def test_a_warm_started_tuner_asks_for_every_option_of_its_parent(
    api: RecordingApi, session: Session, made: HyperparameterTuner, is_attached: bool, start: str
) -> None:
    first = asked(api)
    api.asked.clear()
    parent = HyperparameterTuner.attach("study", session) if is_attached else made

    getattr(parent, start)().fit(wait=False, job_name="study")

    second = asked(api)
    assert second.pop("WarmStartConfig")["ParentHyperParameterTuningJobs"] == [{"HyperParameterTuningJobName": "study"}]
    first.pop("WarmStartConfig", None)
    assert _sorted_tags(second) == _sorted_tags(first)


def _sorted_tags(request: dict[str, Any]) -> dict[str, Any]:
    return request | {"Tags": sorted(request.get("Tags", []), key=lambda tag: str(tag["Key"]))}


def test_several_algorithms_are_attached_with_their_names(api: RecordingApi, session: Session) -> None:
    told = description()
    config = told["HyperParameterTuningJobConfig"]
    ranges, objective = config.pop("ParameterRanges"), config.pop("HyperParameterTuningJobObjective")
    own = {"HyperParameterRanges": ranges, "TuningObjective": objective}
    del told["TrainingJobDefinition"]
    told["TrainingJobDefinitions"] = [definition(DefinitionName=name, **own) for name in ("a", "b")]

    tuner = HyperparameterTuner.attach("study", session, job_details=told, estimator_cls={"b": Estimator})

    assert tuner.estimator is None
    assert tuner.estimator_dict is not None
    assert {name: type(each) for name, each in tuner.estimator_dict.items()} == {"a": PyTorch, "b": Estimator}


def test_a_class_is_only_imported_when_its_user_names_it(api: RecordingApi, session: Session) -> None:
    told = description()
    static = told["TrainingJobDefinition"]["StaticHyperParameters"]
    static |= {"sagemaker_estimator_class_name": '"Own"', "sagemaker_estimator_module": '"this"'}
    assert type(HyperparameterTuner.attach("study", session, told).estimator) is Estimator
    given = "trainyard.pytorch.PyTorch"
    assert type(HyperparameterTuner.attach("study", session, told, given).estimator) is PyTorch
    given = "sagemaker.pytorch.PyTorch"
    assert type(HyperparameterTuner.attach("study", session, told, given).estimator) is PyTorch


def test_a_warm_start_may_have_other_ranges(api: RecordingApi, session: Session) -> None:
    parent = HyperparameterTuner.attach("study", session)

    child = parent.identical_dataset_and_algorithm_tuner({"other"}, hyperparameter_ranges=LR, max_jobs=9)

    assert child.warm_start_config is not None
    assert child.warm_start_config.type is WarmStartTypes.IDENTICAL_DATA_AND_ALGORITHM
    assert child.warm_start_config.parents == {"study", "other"}
    ranges = child.hyperparameter_ranges()
    assert ranges is not None
    assert [each["Name"] for each in ranges["ContinuousParameterRanges"]] == ["lr"]
    assert ranges["IntegerParameterRanges"] == []
    assert (child.max_jobs, child.metric_definitions) == (9, METRICS)
    assert parent.max_jobs == 4


def test_a_transfer_may_have_another_estimator(api: RecordingApi, session: Session, algorithm: Estimator) -> None:
    child = create_transfer_learning_tuner("study", estimator=algorithm, sagemaker_session=session)
    assert child.estimator is algorithm
    assert child.warm_start_config is not None
    assert child.warm_start_config.type is WarmStartTypes.TRANSFER_LEARNING


def test_several_estimators_cannot_be_started_from(algorithm: Estimator, session: Session) -> None:
    tuner = HyperparameterTuner.create({"a": algorithm, "b": algorithm}, {"a": "x", "b": "x"}, {"a": LR, "b": LR})
    with pytest.raises(InvalidRequest, match="several estimators cannot be the parent"):
        tuner.transfer_learning_tuner()


def test_the_best_estimator_has_the_hyperparameters_of_the_best_job(api: RecordingApi, session: Session) -> None:
    api.answers["DescribeHyperParameterTuningJob"] = description(BestTrainingJob={"TrainingJobName": "study-002"})
    api.answers["DescribeTrainingJob"] = {
        **definition(),
        "TrainingJobName": "study-002",
        "TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/study-002",
        "TrainingJobStatus": "Completed",
        "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 30},
        "HyperParameters": {**definition()["StaticHyperParameters"], "opt": '"sgd"', "lr": "0.01"},
        "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/study-002/output/model.tar.gz"},
    }
    tuner = HyperparameterTuner.attach("study", session)

    best = tuner.best_estimator()

    assert tuner.best_training_job() == "study-002"
    assert isinstance(best, PyTorch)
    assert best.hyperparameters() == {"epochs": "3", "opt": '"sgd"', "lr": "0.01"}
    assert best.model_data == "s3://bucket/study-002/output/model.tar.gz"


def test_without_a_best_job_or_any_job_it_is_said_so(session: Session, algorithm: Estimator) -> None:
    with pytest.raises(InvalidRequest, match="has no best training job: none has reported the objective yet"):
        HyperparameterTuner.attach("study", session).best_training_job()
    with pytest.raises(InvalidRequest, match="has no tuning job yet; call fit first"):
        HyperparameterTuner(algorithm, "acc", LR).wait()


def test_a_tuner_cannot_deploy_and_says_what_to_do_with_the_model(session: Session) -> None:
    tuner = HyperparameterTuner.attach("study", session)
    with pytest.raises(AttributeError, match=r"no counterpart of HyperparameterTuner\.deploy of sagemaker.*model_data"):
        getattr(tuner, "deploy")  # noqa: B009 - a type checker knows that there is none
