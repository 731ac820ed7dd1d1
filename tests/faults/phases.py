"""The phases of a job that run its user's code, and how a request gets hostile code into each."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.faults import traps
from tests.faults.canaries import Canaries
from tests.system.trainees import ENDED, Trainee, packed
from tests.unit.instance.agent.wheels import BACKEND, PYPROJECT
from tests.unit.server.services.sagemaker.rules import EVALUATOR, hook, rule
from trainyard._sdk.resume_drill.drill import run_drill
from trainyard._sdk.training.rule_run import RequestedRule, evaluate_rules
from trainyard.cli.debugger.rules import trial_of
from trainyard.foundation.errors import TrainyardError
from trainyard.testing.eventually import eventually
from trainyard.wire.client import Client

LAY = "import sys; sys.path.insert(0, '/opt/ml/code'); import traps; traps.lay()\n"
LOOT = "import traps; traps.loot()\n"
SOUND = f'NEEDS = ""\n{BACKEND}'
# The output of a rule appears in no log of the job.
AWAIT_TRAPS = "import time, traps\nwhile not traps.DONE.exists(): time.sleep(0.05)\nprint(traps.LAID)\n"
RULE = f"{LAY}class Hostile:\n    pass\n"
# The test may interrupt it once it has saved something.
RESUMED = """
import pathlib, time
kept = pathlib.Path("/opt/ml/checkpoints/state")
if not kept.exists():
    kept.write_text("begun")
    time.sleep(4)
"""
INSTALLING = "Installing requirements.txt."

# Two phases try links to every target. Code that follows one link follows any, so the others try only these.
_LEADING = (
    "a folder below the old root",
    "a folder below the root of init",
    "a secret of the host",
    "a folder of the host",
)
FEWER = tuple(
    trap
    for trap in traps.TRAPS
    if not trap.startswith("links to ") or trap.startswith(tuple(f"links to {place} " for place in _LEADING))
)

# For slow phases, whose privileged code does the same as that of others: one trap of each kind.
SOME = (
    "links to a secret of the host in place of everything",
    "links to a folder of the host in place of whole folders",
    "links to a folder of the host among what is stored",
    "pipes among what is stored",
    "files and folders without any right",
    "names of every byte",
    "huge files of nothing but holes",
    "folders that change places with links all the time",
)

Stage = Callable[[Trainee, str], dict[str, Any]]


def await_end(trainee: Trainee, name: str) -> dict[str, Any]:
    return trainee.reach(name, *ENDED)


def interrupt_and_stop(trainee: Trainee, name: str) -> dict[str, Any]:
    """Interrupt a job once its traps are laid, and stop it when the next attempt has come as far."""
    trainee.await_line(name, traps.LAID)
    with client_of(trainee) as client:
        client.call("trainyard", "InterruptJob", TrainingJobName=name)
    # It may be training again before anybody looks, and removing what it left may take long.
    eventually(
        lambda: "Interrupted" in [each["Status"] for each in trainee.describe(name)["SecondaryStatusTransitions"]],
        within=timedelta(seconds=90),
    )
    trainee.reach(name, "Training", *ENDED)
    if trainee.describe(name)["TrainingJobStatus"] not in ENDED:
        trainee.sagemaker.stop_training_job(TrainingJobName=name)
    return await_end(trainee, name)


def drill_again(trainee: Trainee, name: str) -> dict[str, Any]:
    """Run the definition of a job twice more, once with an interruption, and compare the results."""
    told = await_end(trainee, name)
    with client_of(trainee) as client:
        done = run_drill(client, told, bucket=trainee.bucket, seed=0, tolerance=0.0, report=lambda _: None)
    assert done.runs, done.verdict
    return told


def judge_afterwards(trainee: Trainee, name: str) -> dict[str, Any]:
    """Evaluate rules on what a job left, in a process outside any sandbox."""
    told = await_end(trainee, name)
    # There may be nothing left to evaluate.
    with client_of(trainee) as client, suppress(TrainyardError):
        evaluate_rules(trial_of(client, told), {"any": RequestedRule("VanishingGradient", {})})
    return told


def install_once(trainee: Trainee, name: str) -> dict[str, Any]:
    """Run another job with the same requirements, which reuses the environment of the first one."""
    told = await_end(trainee, name)
    assert INSTALLING in "\n".join(trainee.lines(name)), trainee.lines(name)
    kept = ("RoleArn", "AlgorithmSpecification", "OutputDataConfig", "ResourceConfig", "StoppingCondition")
    request = {each: told[each] for each in (*kept, "HyperParameters", "InputDataConfig", "CheckpointConfig")}
    trainee.sagemaker.create_training_job(**request, TrainingJobName=f"{name}-again")
    again = await_end(trainee, f"{name}-again")
    # Some traps cause this error.
    is_kept = "InstallRequirementsError" not in told.get("FailureReason", "")
    assert (INSTALLING in "\n".join(trainee.lines(f"{name}-again"))) != is_kept, told.get("FailureReason")
    return again


@contextmanager
def client_of(trainee: Trainee) -> Iterator[Client]:
    user = trainee.user
    with closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as client:
        yield client


@dataclass(frozen=True, slots=True)
class Siege:
    """A yard, a user with hostile code, and what it must not reach. `changes` are merged into every request."""

    trainee: Trainee
    canaries: Canaries
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Phase:
    """`files` are the files of the code, `changes` are merged into the request; `run` takes a started job to its end.

    A rule is stored beside the code and named in the request. `sdist` is the build backend of a package in the code,
    which its requirements name.
    """

    name: str
    files: Mapping[str, str]
    changes: Mapping[str, Any] = field(default_factory=dict)
    run: Stage = await_end
    rule: str = ""
    sdist: str = ""
    is_warm: bool = False
    traps: Sequence[str] = FEWER


PHASES = {
    phase.name: phase
    for phase in (
        Phase(
            "a build",
            {"pyproject.toml": PYPROJECT, "backend.py": LAY + SOUND, "train.py": LOOT},
            traps=tuple(traps.TRAPS),
        ),
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
        Phase("the program", {"train.py": LOOT + LAY}, traps=tuple(traps.TRAPS)),
        Phase("the program, started warm", {"train.py": f"import torch\n{LOOT}{LAY}"}, is_warm=True),
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
        Phase(
            "a build of a package that is kept",
            {"train.py": LOOT},
            run=install_once,
            sdist=f"{LAY}traps.plant()\n{SOUND}",
            traps=SOME,
        ),
        Phase(
            "a run that is judged later",
            {"train.py": LOOT + LAY},
            {"DebugHookConfig": hook()},
            run=judge_afterwards,
            traps=SOME,
        ),
        Phase("a run that is drilled", {"train.py": f"{RESUMED}{LOOT}{LAY}"}, run=drill_again, traps=SOME),
    )
}


def run_phase(phase: Phase, trap: str, *, siege: Siege, name: str) -> dict[str, Any]:
    """Run a job whose code lays a trap in a phase to its end, and return its description."""
    trainee = siege.trainee
    told = {"trap": trap, "secrets": siege.canaries.secrets, "folder": str(siege.canaries.folder)}
    own: dict[str, str | bytes] = {
        "traps.py": Path(traps.__file__).read_text(),
        "targets.json": json.dumps(told),
    }
    s3, key = trainee.user.client("s3"), f"{name}/source/hostile.tar.gz"
    if phase.sdist:
        own |= {f"packages/{name}/yardcode-1.0.tar.gz": packed(_source(phase.sdist))}
        # The path makes the requirements of each job unique, so each job installs them again.
        own |= {"requirements.txt": f"--no-index\n--find-links /opt/ml/code/packages/{name}\nyardcode==1.0\n"}
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


def _source(backend: str) -> dict[str, str | bytes]:
    """Return a source package, which must be built."""
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: yardcode\nVersion: 1.0\n",
        "pyproject.toml": PYPROJECT,
        "backend.py": backend,
    }
    return {f"yardcode-1.0/{path}": text for path, text in files.items()}


def _channel(name: str, bucket: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/train/"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}
