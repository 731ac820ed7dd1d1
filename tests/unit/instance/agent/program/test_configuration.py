"""The files under /opt/ml/input/config."""

from tests.unit.instance.agent.samples import RECORDED, changed
from trainyard.instance.agent.program.configuration import config_files, decode_hyperparameters, is_for_platform
from trainyard.link.contract import DebuggerSpec, RuleSpec, SyncSpec


def test_hyperparameters_stay_the_strings_they_were_sent_as() -> None:
    spec = RECORDED["every kind of value"]
    assert config_files(spec)["hyperparameters.json"] == spec.hyperparameters


def test_each_channel_says_how_it_came() -> None:
    assert config_files(RECORDED["every kind of value"])["inputdataconfig.json"] == {
        "train": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"},
        "my-val": {
            "TrainingInputMode": "File",
            "S3DistributionType": "ShardedByS3Key",
            "RecordWrapperType": "RecordIO",
            "ContentType": "text/csv",
        },
    }


def test_the_hosts_are_sorted_and_belong_to_their_group() -> None:
    hosts = ["algo-1", "algo-2"]
    assert config_files(RECORDED["second of two under MPI"])["resourceconfig.json"] == {
        "current_host": "algo-2",
        "current_instance_type": "ml.p3.2xlarge",
        "current_group_name": "homogeneousCluster",
        "hosts": hosts,
        "instance_groups": [
            {"instance_group_name": "homogeneousCluster", "instance_type": "ml.p3.2xlarge", "hosts": hosts}
        ],
        "network_interface_name": "lo",
    }


def test_a_value_that_is_not_json_stays_text() -> None:
    spec = changed(hyperparameters={"a": "1", "b": "one", "c": '"one"', "d": ""})
    assert decode_hyperparameters(spec) == {"a": 1, "b": "one", "c": "one", "d": ""}


def test_hyperparameters_for_the_platform_are_distinguished_from_those_for_the_program() -> None:
    assert is_for_platform("sagemaker_program")
    assert is_for_platform("_tuning_objective_metric")
    assert not is_for_platform("epochs")


def test_the_configuration_says_which_folders_are_synced_to_s3() -> None:
    spec = changed(checkpoint=SyncSpec("s3://b/ck", "/state"), tensorboard=SyncSpec("s3://b/tb", "/opt/ml/output/tb"))
    files = config_files(spec)
    assert files["checkpointconfig.json"] == {"LocalPath": "/state"}
    assert files["tensorboardoutputconfig.json"] == {"LocalPath": "/opt/ml/output/tb"}
    assert not {"checkpointconfig.json", "tensorboardoutputconfig.json"} & config_files(changed()).keys()


def test_a_debugger_has_its_files_and_a_job_without_one_has_none_of_them() -> None:
    rule = RuleSpec("nan", "NotANumber", {"patience": "2"}, ({"name": "stoptraining"},))
    hook = {"HookParameters": {"save_interval": "10"}}
    debugger = DebuggerSpec(hook, SyncSpec("s3://yard/tensors", "/opt/ml/output/tensors"), (rule,))
    files = config_files(changed(debugger=debugger))
    assert files["debughookconfig.json"] == {**hook, "LocalPath": "/opt/ml/output/tensors"}
    assert files["rules.json"] == [
        {
            "name": "nan",
            "rule": "NotANumber",
            "parameters": {"patience": "2"},
            "actions": ({"name": "stoptraining"},),
            "source": "",
            "is_dry": False,
            "is_beside": False,
        }
    ]
    assert not {"debughookconfig.json", "rules.json"} & config_files(changed()).keys()
