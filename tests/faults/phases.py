"""The phases of a job in which its user's code runs, and how a request gets hostile code into each of them."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults import traps
from tests.faults.canaries import Canaries
from tests.system.trainees import ENDED, Trainee, packed
from tests.unit.instance.agent.wheels import BACKEND, PYPROJECT
from tests.unit.server.services.sagemaker.rules import EVALUATOR, hook, rule
from trainyard.testing.eventually import eventually
from trainyard.wire.client import Client

LAY = "import sys; sys.path.insert(0, '/opt/ml/code'); import traps; traps.lay()\n"
LOOT = "import traps; traps.loot()\n"
SOUND = f'NEEDS = ""\n{BACKEND}'
# What a rule prints is in no log of the job.
AWAIT_TRAPS = "import time, traps\nwhile not traps.DONE.exists(): time.sleep(0.05)\nprint(traps.LAID)\n"
RULE = f"{LAY}class Hostile:\n    pass\n"

Stage = Callable[[Trainee, str], dict[str, Any]]


def await_end(trainee: Trainee, name: str) -> dict[str, Any]:
    return trainee.reach(name, *ENDED)


def interrupt_and_stop(trainee: Trainee, name: str) -> dict[str, Any]:
    """Have a job go on in another attempt once its traps are laid, and stop it when that one has come as far."""
    trainee.await_line(name, traps.LAID)
    user = trainee.user
    with closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as client:
        client.call("trainyard", "InterruptJob", TrainingJobName=name)
    # It may be back in training before anybody looks.
    eventually(
        lambda: "Interrupted" in [each["Status"] for each in trainee.describe(name)["SecondaryStatusTransitions"]]
    )
    trainee.reach(name, "Training", *ENDED)
    if trainee.describe(name)["TrainingJobStatus"] not in ENDED:
        trainee.sagemaker.stop_training_job(TrainingJobName=name)
    return await_end(trainee, name)


@dataclass(frozen=True, slots=True)
class Siege:
    """A yard, a user of it whose code is hostile, and what may not be reached. `changes` are what every request has."""

    trainee: Trainee
    canaries: Canaries
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Phase:
    """`files` are those of the code, `changes` what the request has besides; `run` brings a job that began to its end.

    A rule is stored beside the code, and named by the request.
    """

    name: str
    files: Mapping[str, str]
    changes: Mapping[str, Any] = field(default_factory=dict)
    run: Stage = await_end
    rule: str = ""
    is_warm: bool = False


PHASES = {
    phase.name: phase
    for phase in (
        Phase("a build", {"pyproject.toml": PYPROJECT, "backend.py": LAY + SOUND, "train.py": LOOT}),
        Phase(
            "a build before a folder outside of /opt/ml is shown",
            {"pyproject.toml": PYPROJECT, "backend.py": LAY + SOUND, "train.py": LOOT},
            {"CheckpointConfig": {"S3Uri": "s3://data/outside/checkpoints", "LocalPath": traps.EXTRA}},
        ),
        Phase(
            "a build that fails",
            {
                "pyproject.toml": PYPROJECT,
                "backend.py": f"{LAY}raise SystemExit('no wheel')\n",
                "requirements.txt": "./inner\n",
                "inner/pyproject.toml": PYPROJECT,
                "inner/backend.py": SOUND,
                "train.py": LOOT,
            },
        ),
        Phase("the program", {"train.py": LOOT + LAY}),
        Phase("the program, started warm", {"train.py": LOOT + LAY}, is_warm=True),
        Phase(
            "the program, on two instances",
            {"train.py": LOOT + LAY},
            {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}},
        ),
        Phase("a rule", {"train.py": AWAIT_TRAPS + LOOT}, rule=RULE),
        Phase(
            "an attempt that is interrupted",
            {"train.py": f"{LOOT}{LAY}import time\ntime.sleep(600)\n"},
            {
                "EnableManagedSpotTraining": True,
                "StoppingCondition": {"MaxRuntimeInSeconds": 300, "MaxWaitTimeInSeconds": 600},
            },
            run=interrupt_and_stop,
        ),
        Phase(
            "a replay",
            {"train.py": LOOT + LAY},
            {"Environment": {"TRAINYARD_REPLAY": "1"}, "DebugHookConfig": hook()},
        ),
    )
}


def run_phase(phase: Phase, trap: str, *, siege: Siege, name: str) -> dict[str, Any]:
    """Run a job whose code lays a trap in a phase, to its end; its description."""
    trainee = siege.trainee
    told = {"trap": trap, "secrets": siege.canaries.secrets, "folder": str(siege.canaries.folder)}
    own = {"traps.py": Path(traps.__file__).read_text(), "targets.json": json.dumps(told)}
    s3, key = trainee.user.client("s3"), f"{name}/source/hostile.tar.gz"
    s3.put_object(Bucket=trainee.bucket, Key=key, Body=packed({**phase.files, **own}))
    request = trainee.request(name, "") | {
        "HyperParameters": {
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": f"s3://{trainee.bucket}/{key}",
        },
        "InputDataConfig": [_channel(each, trainee.bucket) for each in traps.CHANNELS],
        "CheckpointConfig": {"S3Uri": f"s3://{trainee.bucket}/{name}/checkpoints"},
        **siege.changes,
        **phase.changes,
    }
    if phase.rule:
        s3.put_object(Bucket=trainee.bucket, Key=f"{name}/source/rule.py", Body=phase.rule.encode())
        source = f"s3://{trainee.bucket}/{name}/source/rule.py"
        request |= {
            "DebugHookConfig": hook(),
            "DebugRuleConfigurations": [rule("Hostile", image=EVALUATOR, source_s3_uri=source)],
        }
    trainee.sagemaker.create_training_job(**request)
    return phase.run(trainee, name)


def _channel(name: str, bucket: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/train/"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}
