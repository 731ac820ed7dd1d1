"""Prints the requests that estimators send. Its argument is their package: sagemaker or trainyard.

The same code creates the same estimators from either package. No service is called: only the requests are compared.
"""

import importlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

REGION = "us-west-2"
ROLE = "arn:aws:iam::123456789012:role/Trainer"
ANSWERS: dict[str, dict[str, Any]] = {
    "GetCallerIdentity": {"Account": "123456789012", "Arn": "arn:aws:sts::123456789012:assumed-role/Trainer/me"},
    "GetRole": {"Role": {"Arn": ROLE}},
    "ListBuckets": {"Buckets": []},
}
IMAGES: list[dict[str, str]] = [
    {"framework": "image-classification", "version": "1"},
    {"framework": "linear-learner"},
    {"framework": "forecasting-deepar"},
    {"framework": "lda"},
    {"framework": "debugger"},
    {"framework": "xgboost", "version": "1"},
    {"framework": "xgboost", "version": "1.0-1"},
    {"framework": "xgboost", "version": "1.7-1"},
    {"framework": "sklearn", "version": "1.2-1"},
    *(
        {
            "framework": "huggingface",
            "version": version,
            "base_framework_version": base,
            "py_version": python,
            "instance_type": "ml.g4dn.xlarge",
            "image_scope": "training",
        }
        for version, base, python in (
            ("4.56.2", "pytorch2.8.0", "py312"),
            ("4.36", "pytorch2.1", "py310"),
            ("4.10.2", "pytorch1.8.1", "py36"),
            ("4.17", "tensorflow2.6", "py38"),
        )
    ),
    *(
        {"framework": framework, "version": version, "instance_type": kind, "image_scope": scope}
        for framework, version in (("pytorch", "1.9"), ("pytorch", "2.3.0"), ("tensorflow", "2.12"))
        for kind in ("ml.m5.large", "ml.g4dn.xlarge", "ml.p3.2xlarge", "local", "local_gpu")
        for scope in ("training",)
    ),
]

BUILT_IN_RULES = (
    *("all_zero", "check_input_images", "class_imbalance", "confusion", "create_xgboost_report", "dead_relu"),
    *("exploding_tensor", "feature_importance_overweight", "loss_not_decreasing", "nlp_sequence_ratio", "overfit"),
    *("overtraining", "poor_weight_initialization", "saturated_activation", "similar_across_runs"),
    *("stalled_training_rule", "tensor_variance", "tree_depth", "unchanged_tensor", "vanishing_gradient"),
    "weight_update_ratio",
)

Asked = list[tuple[str, dict[str, Any]]]


def main(package: str) -> None:
    asked: Asked = []
    session = sagemaker_session(asked) if package == "sagemaker" else trainyard_session(asked)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        source.mkdir()
        (source / "train.py").write_text("print('trains')")
        (source / "rules.py").write_text("class Mine: ...")
        requests = {
            name: _asked_by(estimator, asked, inputs)
            for name, estimator, inputs in (
                *_estimators(package, session, str(source)),
                *_estimators_with_data(package, session, str(source)),
                *_estimators_with_rules(package, session, str(source)),
            )
        }
    retrieve = importlib.import_module(f"{package}.image_uris").retrieve
    images = {json.dumps(image): retrieve(region=region, **image) for image in IMAGES for region in _regions(image)}
    print(json.dumps({"images": images, "requests": requests}))


def _estimators(package: str, session: Any, source: str) -> list[tuple[str, Any, Any]]:
    estimators, inputs = (importlib.import_module(f"{package}.{module}") for module in ("estimator", "inputs"))
    torch = importlib.import_module(f"{package}.pytorch").PyTorch
    tensorflow = importlib.import_module(f"{package}.tensorflow").TensorFlow
    huggingface = importlib.import_module(f"{package}.huggingface").HuggingFace
    sklearn = importlib.import_module(f"{package}.sklearn").SKLearn
    xgboost = importlib.import_module(f"{package}.xgboost").XGBoost
    image = f"433757028032.dkr.ecr.{REGION}.amazonaws.com/image-classification:1"
    plain = {"role": ROLE, "sagemaker_session": session, "source_dir": source, "entry_point": "train.py"}
    algorithm = estimators.Estimator(
        image,
        ROLE,
        2,
        "ml.p2.xlarge",
        output_path="s3://bucket/out",
        sagemaker_session=session,
        enable_network_isolation=True,
        model_uri="s3://bucket/model.tar.gz",
        use_spot_instances=True,
        max_run=1800,
        max_wait=3600,
        base_job_name="ABC",
        checkpoint_s3_uri="s3://bucket/checkpoints",
        checkpoint_local_path="/opt/ml/checkpoints",
        hyperparameters={"layers": 18, "rate": 0.01, "shape": "1,28,28", "augment": True},
    )
    channels = {
        "train": inputs.TrainingInput("s3://bucket/t", "FullyReplicated", content_type="application/x-image"),
        "validation": "s3://bucket/v",
    }
    sharded = inputs.TrainingInput(
        "s3://bucket/d",
        distribution="ShardedByS3Key",
        compression="Gzip",
        record_wrapping="RecordIO",
        input_mode="Pipe",
        shuffle_config=inputs.ShuffleConfig(3),
    )
    return [
        ("algorithm", algorithm, channels),
        (
            "script",
            torch(
                **plain,
                framework_version="1.9.0",
                py_version="py38",
                instance_count=1,
                instance_type="ml.g4dn.xlarge",
                hyperparameters={"batch-size": 64, "rate": 0.1, "flag": False, "name": "x", "none": None, "list": [1]},
                disable_profiler=True,
                debugger_hook_config=False,
            ),
            "s3://bucket/d",
        ),
        (
            "options",
            torch(
                **plain,
                framework_version="2.0.1",
                py_version="py310",
                instance_count=1,
                instance_type="ml.g5.xlarge",
                metric_definitions=[{"Name": "loss", "Regex": "l=(.*)"}],
                environment={"A": "b"},
                tags=[{"Key": "a", "Value": "b"}],
                keep_alive_period_in_seconds=60,
                max_retry_attempts=2,
                subnets=["subnet-1"],
                security_group_ids=["sg-1"],
                output_path="s3://other/deep/",
                distribution={"torch_distributed": {"enabled": True}},
            ),
            None,
        ),
        (
            "mpi",
            torch(
                **plain,
                framework_version="1.12",
                py_version="py38",
                instance_count=1,
                instance_type="ml.g4dn.12xlarge",
                input_mode="FastFile",
                code_location="s3://code/deep",
                distribution={
                    "mpi": {"enabled": True, "processes_per_host": 4, "custom_mpi_options": "--NCCL_DEBUG INFO"}
                },
            ),
            inputs.FileSystemInput("fs-1", "EFS", "/mnt/data"),
        ),
        (
            "sharded",
            tensorflow(
                **plain,
                framework_version="2.11",
                py_version="py39",
                instance_count=2,
                instance_type="ml.p3.16xlarge",
                distribution={"smdistributed": {"dataparallel": {"enabled": True}}},
            ),
            sharded,
        ),
        (
            "servers",
            tensorflow(
                **{**plain, "source_dir": "s3://bucket/sourcedir.tar.gz"},
                framework_version="2.12",
                py_version="py310",
                instance_count=2,
                instance_type="ml.c5.xlarge",
                model_dir=False,
                distribution={"parameter_server": {"enabled": True}},
            ),
            None,
        ),
        (
            "transformers",
            huggingface(
                **plain,
                py_version="py311",
                transformers_version="4.49.0",
                pytorch_version="2.5.1",
                instance_count=2,
                instance_type="ml.p3.16xlarge",
                hyperparameters={"model_name": "distilbert-base-uncased", "epochs": 1},
                distribution={"torch_distributed": {"enabled": True}},
            ),
            {"train": "s3://bucket/train"},
        ),
        (
            "scikit-learn",
            sklearn(
                "train.py", "1.2-1", "py3", source, role=ROLE, sagemaker_session=session, instance_type="ml.m5.large"
            ),
            "s3://bucket/d",
        ),
        (
            "boosting",
            xgboost(
                "train.py",
                "1.7-1",
                source,
                {"max_depth": 5, "objective": "reg:squarederror"},
                role=ROLE,
                sagemaker_session=session,
                instance_count=2,
                instance_type="ml.m5.large",
            ),
            {"train": inputs.TrainingInput("s3://bucket/d", content_type="text/csv")},
        ),
        (
            "isolated",
            torch(
                **plain,
                framework_version="2.0",
                py_version="py310",
                instance_count=1,
                instance_type="ml.m5.large",
                enable_network_isolation=True,
            ),
            None,
        ),
    ]


def _estimators_with_data(package: str, session: Any, source: str) -> list[tuple[str, Any, Any]]:
    """Every way to say where data is and how it is read, what a job resumes from, and how long it may take."""
    inputs = importlib.import_module(f"{package}.inputs")
    records = importlib.import_module(f"{package}.amazon.amazon_estimator").FileSystemRecordSet
    torch = importlib.import_module(f"{package}.pytorch").PyTorch

    def job(**options: Any) -> Any:
        common = {"framework_version": "2.0.1", "py_version": "py310", "instance_type": "ml.m5.large"}
        places = {"role": ROLE, "sagemaker_session": session, "source_dir": source, "entry_point": "train.py"}
        count = {} if "instance_groups" in options else {"instance_count": 1}
        return torch(**{**common, **places, **count, **options})

    kept = {"checkpoint_s3_uri": "s3://bucket/kept"}
    spot = {"use_spot_instances": True, "max_run": 600}
    lustre = records("fs-0123456789a", "FSxLustre", "/mnt", 100, 10)
    efs = records("fs-0123456789b", "EFS", "/mnt", num_records=1, feature_dim=1, channel="test")
    modes = {
        "file": inputs.TrainingInput("s3://bucket/a", input_mode="File"),
        "fast": inputs.TrainingInput("s3://bucket/b", distribution="ShardedByS3Key", input_mode="FastFile"),
        "pipe": inputs.TrainingInput("s3://bucket/c", compression="None", record_wrapping="None", input_mode="Pipe"),
        "plain": "s3://bucket/d",
    }
    augmented = inputs.TrainingInput(
        "s3://bucket/all.manifest",
        s3_data_type="AugmentedManifestFile",
        attribute_names=["source-ref", "label"],
        record_wrapping="RecordIO",
        input_mode="Pipe",
        shuffle_config=inputs.ShuffleConfig(0),
    )
    group = importlib.import_module(f"{package}.instance_group").InstanceGroup
    groups = [group("feeders", "ml.c5.xlarge", 2), group("trainers", "ml.g4dn.xlarge", 1)]
    some = {
        "train": inputs.TrainingInput("s3://bucket/d", distribution="ShardedByS3Key", instance_groups=["feeders"]),
        "test": "s3://bucket/t",
    }
    some_by_mpi = {"mpi": {"enabled": True, "processes_per_host": 2}, "instance_groups": [groups[1]]}
    return [
        ("groups", job(instance_type=None, instance_groups=groups), some),
        ("one of groups", job(instance_type=None, instance_groups=groups, distribution=some_by_mpi), some),
        (
            "only group",
            job(instance_type=None, instance_groups=groups[:1], distribution={"mpi": {"enabled": True}}),
            None,
        ),
        ("modes", job(input_mode="FastFile"), modes),
        ("only channel", job(input_mode="File"), inputs.TrainingInput("s3://bucket/d", input_mode="Pipe")),
        ("manifest", job(), {"train": inputs.TrainingInput("s3://bucket/m", s3_data_type="ManifestFile")}),
        ("augmented manifest", job(input_mode="Pipe"), {"train": augmented}),
        ("checkpoints", job(**kept), None),
        ("checkpoints elsewhere", job(**kept, checkpoint_local_path="/state"), None),
        ("spot", job(**spot, **kept, max_wait=1200), "s3://bucket/d"),
        ("spot that waits no longer than it runs", job(**spot, max_wait=600), None),
        ("model", job(model_uri="s3://bucket/model.tar.gz", max_run=60), {"train": "s3://bucket/d"}),
        ("model alone", job(model_uri="s3://bucket/m.tar.gz", model_channel_name="pretrained"), None),
        ("file system", job(), inputs.FileSystemInput("fs-0123456789a", "EFS", "/mnt", "rw", "text/csv")),
        ("record set", job(), lustre),
        ("record sets", job(), [lustre, efs]),
        ("channel of a record set", job(), efs.data_channel()),
    ]


def _estimators_with_rules(package: str, session: Any, source: str) -> list[tuple[str, Any, Any]]:
    """Every way to say which tensors are saved, which rules evaluate them, and which actions follow."""
    debugger = importlib.import_module(f"{package}.debugger")
    torch = importlib.import_module(f"{package}.pytorch").PyTorch
    rule, configs, collection = debugger.Rule, debugger.rule_configs, debugger.CollectionConfig

    def job(**options: Any) -> Any:
        common = {"framework_version": "2.0.1", "py_version": "py310", "instance_type": "ml.m5.large"}
        places = {"role": ROLE, "sagemaker_session": session, "source_dir": source, "entry_point": "train.py"}
        return torch(**{**common, **places, "instance_count": 1, **options})

    names = [name for name in dir(configs) if name.islower() and not name.startswith("_") and name in BUILT_IN_RULES]
    stop = configs.ActionList(configs.StopTraining())
    several = configs.ActionList(
        configs.StopTraining("other-job"), configs.Email("me@example.com"), configs.SMS("+4915112345678")
    )
    hook = debugger.DebuggerHookConfig(
        hook_parameters={"train.save_interval": "1", "eval.save_interval": "1"},
        collection_configs=[collection("weights", {"save_histogram": "True"}), collection(name="losses")],
    )
    elsewhere = debugger.DebuggerHookConfig(
        "s3://bucket/debug/", "/opt/ml/tensors", {"save_interval": "5"}, [collection("all", {"include_regex": ".*"})]
    )
    board = debugger.TensorBoardOutputConfig(s3_output_path="s3://bucket/board")
    mine = rule.custom(
        name="Mine",
        image_uri="mine:1",
        instance_type="ml.m5.large",
        volume_size_in_gb=30,
        source=f"{source}/rules.py",
        rule_to_invoke="Mine",
        s3_output_path="s3://bucket/rules",
        other_trials_s3_input_paths=["s3://bucket/a", "s3://bucket/b"],
        rule_parameters={"limit": "3"},
        collections_to_save=[collection("weights")],
        actions=several,
    )
    there = rule.custom("There", "mine:1", "ml.m5.large", 30, source="s3://bucket/r.py", rule_to_invoke="R")
    changed = rule.sagemaker(
        configs.loss_not_decreasing(),
        name="Loss",
        container_local_output_path="/opt/rule",
        rule_parameters={"num_steps": "5", "tensor_regex": ".*"},
        collections_to_save=[collection("losses", {"save_interval": "10"})],
        actions=several,
    )
    four = ["vanishing_gradient", "overfit", "overtraining", "poor_weight_initialization"]
    seed = [rule.sagemaker(getattr(configs, name)(), actions=stop) for name in four]
    return [
        ("seed", job(rules=seed, debugger_hook_config=hook, tensorboard_output_config=board, base_job_name="s"), None),
        ("all rules", job(rules=[rule.sagemaker(getattr(configs, name)()) for name in names]), None),
        ("own rules", job(rules=[mine, there, changed], output_path="s3://other/deep"), None),
        ("hook elsewhere", job(debugger_hook_config=elsewhere), None),
        ("no hook", job(debugger_hook_config=False, tensorboard_output_config=board), None),
    ]


def _asked_by(estimator: Any, asked: Asked, inputs: Any) -> dict[str, Any]:
    """Return the request for a job and where its code was uploaded, with the same time in every name."""
    asked.clear()
    estimator.fit(inputs, wait=False)
    found: dict[str, Any] = {}
    for operation, params in asked:
        if operation == "CreateTrainingJob":
            found["request"] = params
        if operation == "PutObject":
            found["code"] = f"s3://{params['Bucket']}/{params['Key']}"
    text = re.sub(r"\d{4}(-\d\d){5}-\d{3}", "TIME", json.dumps(found))
    named: dict[str, Any] = json.loads(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text))
    collections = named["request"].get("DebugHookConfig", {}).get("CollectionConfigurations", [])
    # The SDK has them in a set.
    collections.sort(key=json.dumps)
    return named


def _regions(image: dict[str, str]) -> list[str]:
    return ["eu-west-1"] if image["framework"] == "lda" else [REGION]


def sagemaker_session(asked: Asked) -> Any:
    """Return a session of the sagemaker SDK that records calls."""
    import boto3
    import botocore.client
    import sagemaker

    def answer(self: Any, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append((operation, params))
        return ANSWERS.get(operation, {})

    botocore.client.BaseClient._make_api_call = answer
    return sagemaker.Session(
        boto3.Session(region_name=REGION, aws_access_key_id="unused", aws_secret_access_key="unused")
    )


def trainyard_session(asked: Asked) -> Any:
    """Return a session of the trainyard SDK that records calls."""
    from trainyard.session import Session

    class Api:
        def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
            asked.append((operation, {name: value for name, value in params.items() if name != "Body"}))
            return ANSWERS.get(operation, {})

        def stream(self, service: str, operation: str, **params: Any) -> AbstractContextManager[Iterator[bytes]]:
            raise AssertionError("nothing may follow the log of a job that does not exist")

    return Session(api=Api(), region=REGION)


if __name__ == "__main__":
    main(sys.argv[1])
