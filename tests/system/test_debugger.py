"""The debugger on an instance: a whole agent, a real sandbox, real trainings with torch."""

import io
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.system.fuzz.world import User
from tests.system.test_agent import WITHOUT_NAMESPACES, World, _world
from tests.system.trainees import Trainee
from tests.system.watching import folder_of
from tests.unit.instance.agent.samples import BUCKET, put_object, read_object
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.instance.agent.watch.rule_processes import DRAIN_S, LOG_BYTES
from trainyard.link.contract import ChannelSpec, DebuggerSpec, FrameKind, LaunchSpec, RuleSpec, SyncSpec
from trainyard.link.spec_queries import is_spread
from trainyard.link.specs import read_spec
from trainyard.link.spool import read_frames
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, engine_of_tests

TENSORS = "/opt/ml/output/tensors"
STOP = ({"name": "StopTraining"},)
STALLED = RuleSpec("stalled", "StalledTrainingRule", is_beside=True)
ONE_THREAD = {"OMP_NUM_THREADS": "1"}

# A training without any debugger code. The batch of step POISON contains a NaN.
SCRIPT = """
import os, signal, sys, time, torch
from torch import nn

POISON, STEPS = int(os.environ.get("POISON", "-1")), int(os.environ.get("STEPS", "40"))
def terminated(*_):
    print("terminated", time.time(), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, terminated)
torch.manual_seed(int(os.environ.get("SEED", "1")))
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(400, 8)
data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
loader = torch.utils.data.DataLoader(data, batch_size=10, shuffle=True)
step = 0
while step < STEPS:
    for x, y in loader:
        if step == POISON:
            x[3, 2] = float("nan")
            print("poisoned", time.time(), flush=True)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(0.01)
print("trained", flush=True)
"""


@pytest.fixture
def world() -> Iterator[World]:
    yield from _world(is_root=os.geteuid() == 0)


@pytest.fixture
def bare_world() -> Iterator[World]:
    """A world without namespaces."""
    for made in _world(is_root=False):
        made.prefix = [made.interpreter, "-I", "-c", WITHOUT_NAMESPACES]
        yield made


def debugger(*rules: RuleSpec, hook: Mapping[str, Any] | None = None) -> DebuggerSpec:
    config = {"HookParameters": {"save_interval": "10"}, "CollectionConfigurations": [{"CollectionName": "gradients"}]}
    return DebuggerSpec(hook or config, SyncSpec("s3://yard/tensors/mnist-7/debug-output", TENSORS), rules)


def standings(world: World) -> dict[str, Mapping[str, Any]]:
    """The last report of each rule."""
    return {payload["rule"]: payload for payload in world.payloads(FrameKind.RULE)}


def notes(world: World) -> list[str]:
    return [payload["text"] for payload in world.payloads(FrameKind.NOTE)]


def keys(world: World) -> list[str]:
    with world.store() as store:
        return [each.key for each in store.list_objects(BUCKET, prefix="tensors/", limit=1000).objects]


def downloaded(world: World, folder: Path, under: str = "tensors/mnist-7/debug-output/") -> Path:
    """Return the stored tensors as files."""
    for key in keys(world):
        place = folder / key.removeprefix(under)
        place.parent.mkdir(parents=True, exist_ok=True)
        with world.store() as store:
            place.write_bytes(read_object(store, key))
    return folder


def said_at(world: World, word: str) -> float:
    return next(float(line.split()[1]) for line in world.log() if line.startswith(word))


def test_a_training_that_knows_nothing_of_it_is_captured_and_judged(world: World, tmp_path: Path) -> None:
    rules = [RuleSpec("vanishing", "VanishingGradient"), RuleSpec("decreasing", "LossNotDecreasing")]
    verdict = world.run(SCRIPT, debugger=debugger(*rules), environment=ONE_THREAD)
    assert (verdict["outcome"], world.log()) == ("completed", ["trained"]), notes(world)
    for name in ("vanishing", "decreasing"):
        assert standings(world)[name]["status"] == "NoIssuesFound", standings(world)
        assert standings(world)[name]["judged"] == 40
    trial = create_trial(downloaded(world, tmp_path / "trial"))
    assert trial.loaded_all_steps
    assert trial.workers() == ["worker_0"]
    assert trial.steps() == [0, 10, 20, 30]
    assert "gradient/Sequential_0.weight" in trial.tensor_names()
    assert trial.tensor("gradient/Sequential_0.weight").value(10).shape == (16, 8)
    world.begin_again()
    others = {"other_trials": "s3://yard/tensors/mnist-7/debug-output"}
    same = RuleSpec("same", "SimilarAcrossRuns", others, is_beside=True)
    verdict = world.run(SCRIPT, debugger=debugger(same), environment=ONE_THREAD)
    assert verdict["outcome"] == "completed", verdict
    assert standings(world)["same"]["status"] == "IssuesFound", standings(world)
    # All, not only those up to its last new finding.
    assert standings(world)["same"]["judged"] == 40


@pytest.mark.flow
def test_a_poisoned_batch_is_named_and_stops_the_program_within_two_seconds(world: World) -> None:
    rule = RuleSpec("nan", "NotANumber", actions=STOP)
    environment = {**ONE_THREAD, "POISON": "23", "STEPS": "100000"}
    verdict = world.run(SCRIPT, debugger=debugger(rule), environment=environment)
    assert verdict["outcome"] == "stopped", verdict
    found = next(payload["finding"] for payload in world.payloads(FrameKind.RULE) if payload["finding"])
    assert (found["step"], found["worker"]) == (23, "worker_0")
    assert 'The rule "nan" found an issue at step 23 in ' in verdict["reason"]
    assert said_at(world, "terminated") - said_at(world, "poisoned") < 2.0
    assert standings(world)["nan"]["status"] == "IssuesFound"
    assert [key for key in keys(world) if key.endswith("records/worker_0/000000000023/record.json")]


CUSTOM = '''
import numpy
from smdebug.rules import Rule


class LargeGradient(Rule):
    """Fires when a gradient is larger than a threshold, which comes as a string."""

    def __init__(self, base_trial, threshold="1000"):
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        for name in self.base_trial.tensor_names(collection="gradients"):
            if step in self.base_trial.tensor(name).steps():
                if abs(self.base_trial.tensor(name).value(step)).max() > self.threshold:
                    return True
        return False


class Broken(Rule):
    def invoke_at_step(self, step):
        return {}["no such key"]


class Nosy(Rule):
    """Looks around for what is none of its business."""

    def invoke_at_step(self, step):
        import os, socket

        assert os.getpid() < 100, "it sees other processes"
        assert not os.path.exists("HOME"), "it sees the yard"
        return False
'''


def test_rules_of_the_user_judge_beside_the_program_and_a_broken_one_hurts_nothing(world: World) -> None:
    with world.store() as store:
        put_object(store, "rules/mine.py", CUSTOM.replace("HOME", str(world.root)).encode())
    source = "s3://yard/rules/mine.py"
    rules = [
        RuleSpec("fires", "LargeGradient", {"threshold": "1e-9"}, source=source),
        RuleSpec("quiet", "LargeGradient", source=source),
        RuleSpec("broken", "Broken", source=source),
        RuleSpec("nosy", "Nosy", source=source),
        RuleSpec("absent", "NoSuchClass", source=source),
        RuleSpec("gone", "LargeGradient", source="s3://yard/rules/none.py"),
        STALLED,
    ]
    verdict = world.run(SCRIPT, debugger=debugger(*rules), environment=ONE_THREAD)
    assert verdict["outcome"] == "completed", verdict
    found = standings(world)
    assert {name: payload["status"] for name, payload in found.items()} == {
        "fires": "IssuesFound",
        "quiet": "NoIssuesFound",
        "broken": "Error",
        "nosy": "NoIssuesFound",
        "absent": "Error",
        "gone": "Error",
        "stalled": "NoIssuesFound",
    }, (found, (world.folder.root / "judge.log").read_text())
    assert found["fires"]["judged"] == found["quiet"]["judged"] == 4  # the steps that were saved
    assert "at step 0" in found["fires"]["details"]
    assert "KeyError: 'no such key'" in found["broken"]["details"]
    assert "its classes are: LargeGradient, Broken, Nosy" in found["absent"]["details"]
    assert "rules/none.py" in found["gone"]["details"]
    assert found["stalled"]["judged"] == 40


def test_the_beginning_of_endless_output_of_a_rule_is_kept(world: World) -> None:
    endless = "import os, sys\nprint('begins', flush=True)\nfor _ in range(64): os.write(2, b'x' * (1 << 20))\n"
    with world.store() as store:
        put_object(store, "rules/endless.py", f"{endless}{CUSTOM}".encode())
    rule = RuleSpec("endless", "LargeGradient", source="s3://yard/rules/endless.py")
    verdict = world.run(SCRIPT, debugger=debugger(rule), environment=ONE_THREAD)
    assert verdict["outcome"] == "completed", verdict
    written = (world.folder.root / "judge.log").read_bytes()
    assert (written.startswith(b"begins\nxxx"), len(written)) == (True, LOG_BYTES)
    assert standings(world)["endless"]["status"] == "NoIssuesFound"


def test_a_program_without_a_framework_is_left_alone_and_nobody_waits_for_it(world: World) -> None:
    with world.store() as store:
        put_object(store, "rules/mine.py", CUSTOM.encode())
    rules = [RuleSpec("custom", "LargeGradient", source="s3://yard/rules/mine.py"), RuleSpec("nan", "NotANumber")]
    script = "import sys\nprint([name for name in sys.modules if name.startswith('trainyard')])"
    began = time.monotonic()
    verdict = world.run(script, debugger=debugger(*rules))
    assert time.monotonic() - began < DRAIN_S
    assert (verdict["outcome"], world.log()) == ("completed", ["[]"])
    assert standings(world)["custom"]["judged"] == 0
    assert "nan" not in standings(world)
    assert [key for key in keys(world) if not key.endswith("ended.json")] == []


def test_an_agent_that_has_rules_judged_loads_no_numpy_for_it(world: World) -> None:
    script = "import time\nprint('there', flush=True)\ntime.sleep(60)"
    world.start(script, debugger=debugger(RuleSpec("nan", "NotANumber"), STALLED))
    eventually(lambda: "stalled" in standings(world), "the judge at its work")
    assert world.agent is not None
    loaded = Path(f"/proc/{world.agent.pid}/maps").read_text()
    assert "python" in loaded
    assert "numpy" not in loaded
    world.stop()
    assert world.verdict()["outcome"] == "stopped"


def test_a_recorded_step_is_run_again_bit_for_bit_from_other_seeds(world: World) -> None:
    fires = RuleSpec("small", "VanishingGradient", {"threshold": "1000"}, actions=STOP)
    verdict = world.run(SCRIPT, debugger=debugger(fires), environment=ONE_THREAD | {"STEPS": "100000"})
    assert verdict["outcome"] == "stopped", verdict
    recorded = [key for key in keys(world) if "/records/" in key]
    step = int(next(key for key in recorded if key.endswith("record.json")).split("/")[-2])
    world.begin_again()
    channel = ChannelSpec("trainyard-replay", "File", "yard", "tensors/mnist-7/debug-output/records/", tuple(recorded))
    environment = ONE_THREAD | {"TRAINYARD_REPLAY": str(step), "SEED": "7"}
    verdict = world.run(SCRIPT, debugger=debugger(), environment=environment, channels=(channel,))
    assert verdict["outcome"] == "completed", verdict
    (line,) = world.log()
    assert line.startswith(f"[trainyard] replay of step {step} on worker_0: the loss is ")
    assert line.endswith("the same as recorded, bit for bit.")
    told = json.loads(world.archive("output.tar.gz")["replay/worker_0.json"])
    assert told["is_same"]
    assert told["recorded"] == told["replayed"] != []


# Two ranks that train together; the data of one of them is poisoned at a step.
RANKS = """
import os, torch, torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(int(os.environ["STEPS"])):
    x = torch.randn(8, 4)
    if step == 11 and rank == 1:
        x[0, 0] = float("nan")
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""
LOSSES = {"CollectionConfigurations": [{"CollectionName": "losses", "CollectionParameters": {"save_interval": "1"}}]}


def test_a_rank_whose_data_is_poisoned_is_named_and_all_are_stopped(world: World, tmp_path: Path) -> None:
    hook = {**LOSSES, "HookParameters": {"include_workers": "all"}}
    rule = RuleSpec("nan", "NotANumber", actions=STOP)
    launch = LaunchSpec("torchrun", {"algo-1": 2})
    rules = (rule, RuleSpec("decreasing", "LossNotDecreasing"))
    verdict = world.run(
        RANKS, debugger=debugger(*rules, hook=hook), launch=launch, master_port=20000, environment={"STEPS": "100000"}
    )
    assert verdict["outcome"] == "stopped", verdict
    found = [payload["finding"] for payload in world.payloads(FrameKind.RULE) if payload["finding"]]
    assert ("worker_1", 11) in [(each["worker"], each["step"]) for each in found]
    # The ranks are killed, and yet the rule that found nothing has reported its steps.
    assert standings(world)["decreasing"]["judged"] >= 12
    trial = create_trial(downloaded(world, tmp_path / "trial"))
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.loaded_all_steps


@pytest.mark.slow
def test_replicas_that_are_no_longer_the_same_are_found_by_a_judge_that_sees_all_ranks(world: World) -> None:
    poisoning = """        x[0, 0] = float("nan")"""
    altering = """        model.module[0].weight.data[0, 0] += 0.001"""
    assert poisoning in RANKS
    verdict = world.run(
        RANKS.replace(poisoning, altering),
        debugger=debugger(RuleSpec("replicas", "ReplicaDivergence", is_beside=True)),
        launch=LaunchSpec("torchrun", {"algo-1": 2}),
        master_port=20000,
        environment={"STEPS": "30"},
    )
    assert verdict["outcome"] == "completed", verdict
    found = [payload["finding"] for payload in world.payloads(FrameKind.RULE) if payload["finding"]]
    assert standings(world)["replicas"]["status"] == "IssuesFound", (standings(world), notes(world))
    assert found[0]["step"] == 11
    assert found[0]["tensor"].endswith("0.weight")
    assert " differs from that of worker_" in found[0]["message"]  # of either: who is read first is the measure


def test_without_namespaces_it_is_captured_judged_and_stopped_as_well(bare_world: World, tmp_path: Path) -> None:
    bare_world.interpreter = _torch_for_everybody(bare_world)
    rule = RuleSpec("nan", "NotANumber", actions=STOP)
    environment = ONE_THREAD | {"POISON": "5", "STEPS": "100000"}
    rules = (rule, STALLED)
    verdict = bare_world.run(SCRIPT, debugger=debugger(*rules), environment=environment)
    assert (verdict["outcome"], "step 5" in verdict["reason"]) == ("stopped", True), (verdict, notes(bare_world))
    assert standings(bare_world)["stalled"]["status"] == "NoIssuesFound", standings(bare_world)
    assert create_trial(downloaded(bare_world, tmp_path / "trial")).steps() == [0]


def _torch_for_everybody(world: World) -> str:
    if world.interpreter != sys.executable:
        pytest.skip("the Python that has torch lies where an ordinary user cannot get to")
    return world.interpreter


# For the real yard: instances that train independently, until one of them is poisoned.
APART = SCRIPT.replace(
    'POISON, STEPS = int(os.environ.get("POISON", "-1")), ',
    'POISON, STEPS = (12 if os.environ["SM_CURRENT_HOST"] == "algo-2" else -1), ',
).replace('os.environ.get("STEPS", "40")', '"100000"')
IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"
OWN_IMAGE = "864354269164.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rule-evaluator:latest"


# Instances that train the same model independently, until the weights of one of them are altered.
DRIFTING = SCRIPT.replace(
    "        step += 1\n",
    "        if step == 11 and os.environ['SM_CURRENT_HOST'] == 'algo-2':\n"
    "            model[0].weight.data[0, 0] += 0.001\n"
    "        step += 1\n",
)


APART_BY_OWN_RULE = """
from smdebug.rules import Rule

class Apart(Rule):
    def invoke_at_step(self, step):
        return any(self.differs(self.base_trial.tensor(name), step) for name in self.base_trial.tensor_names(step=step))

    def differs(self, tensor, step):
        return (tensor.value(step, worker="worker_0") != tensor.value(step, worker="worker_1")).any()
"""


@pytest.fixture(scope="module")
def anna(administrator: User) -> Trainee:
    return Trainee(administrator.add_user("anna")).prepare()


def rule_of(name: str, word: str, **parameters: str) -> dict[str, Any]:
    return {
        "RuleConfigurationName": name,
        "RuleEvaluatorImage": IMAGE,
        "RuleParameters": {"rule_to_invoke": word, **parameters},
    }


def debugged(*rules: dict[str, Any], **hook: Any) -> dict[str, Any]:
    config = {"S3OutputPath": "s3://data/tensors", "CollectionConfigurations": [{"CollectionName": "gradients"}]}
    return {"DebugHookConfig": config | hook, "DebugRuleConfigurations": list(rules)}


def test_one_instance_that_is_poisoned_stops_them_all_and_isolation_keeps_nothing_from_it(anna: Trainee) -> None:
    rule = rule_of("nan", "NotANumber", action_json='[{"name": "stoptraining"}]')
    beside = rule_of("stalled", "StalledTrainingRule")
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    told = anna.run(
        "apart",
        APART,
        ResourceConfig=two,
        EnableNetworkIsolation=engine_of_tests() == "local",  # on a cluster only one instance alone is isolated
        **debugged(rule, beside, HookParameters={"include_workers": "all"}),
        Environment=ONE_THREAD,
    )
    assert told["TrainingJobStatus"] == "Stopped", told
    statuses = {each["RuleConfigurationName"]: each for each in told["DebugRuleEvaluationStatuses"]}
    assert statuses["nan"]["RuleEvaluationStatus"] == "IssuesFound"
    assert "worker_1" in statuses["nan"]["StatusDetails"]
    terminated = [float(anna.printed("apart", instance=each)[-1].split()[1]) for each in range(2)]
    assert abs(terminated[0] - terminated[1]) < 2.0
    workers = {key.split("/")[4] for key in anna.keys("tensors/apart/debug-output/steps/")}
    assert "worker_1" in workers  # the other may not have come to its first step


def test_a_judge_sees_the_replicas_of_all_instances_wherever_they_lie(anna: Trainee, yard: RunningYard) -> None:
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    anna.user.client("s3").put_object(Bucket=anna.bucket, Key="rules/apart.py", Body=APART_BY_OWN_RULE)
    own = rule_of("own", "Apart", source_s3_uri=f"s3://{anna.bucket}/rules/apart.py") | {
        "RuleEvaluatorImage": OWN_IMAGE
    }
    saved = {"include_workers": "all", "save_interval": "10"}
    told = anna.run(
        "drifting",
        DRIFTING,
        ResourceConfig=two,
        **debugged(rule_of("replicas", "ReplicaDivergence"), own, HookParameters=saved),
        Environment=ONE_THREAD,
        Tags=[{"Key": "trainyard:spread", "Value": "strict"}],
    )
    assert told["TrainingJobStatus"] == "Completed", told
    assert is_spread(read_spec(folder_of(yard, "drifting").root)) == (engine_of_tests() != "local")
    replicas, by_own_rule = told["DebugRuleEvaluationStatuses"]
    assert replicas["RuleEvaluationStatus"] == by_own_rule["RuleEvaluationStatus"] == "IssuesFound", told
    assert "was met at step 20. In total, it was met at 2 of 4 steps" in by_own_rule["StatusDetails"]
    frames = read_frames(folder_of(yard, "drifting").spool, 0).frames
    told_rules = [frame.payload for frame in frames if frame.kind is FrameKind.RULE]
    found = [each["finding"] for each in told_rules if each["rule"] == "replicas" and each["finding"]]
    assert {"worker_0", "worker_1"} >= {each["worker"] for each in found}
    assert min(each["step"] for each in found) == 12  # the first whose weights were altered before it
    assert " differs from that of worker_" in found[0]["message"]


@pytest.mark.slow
def test_a_checkpoint_is_saved_before_a_stop_and_a_warm_start_captures_as_well(anna: Trainee) -> None:
    rule = rule_of("nan", "NotANumber", action_json='[{"name": "checkpointthenstop"}]')
    kept = {"CheckpointConfig": {"S3Uri": "s3://data/kept"}}
    environment = ONE_THREAD | {"POISON": "12", "STEPS": "100000"}
    told = anna.run("saves", SCRIPT, **debugged(rule), **kept, Environment=environment)
    assert told["TrainingJobStatus"] == "Stopped", told
    (key,) = anna.keys("kept/")
    assert key.startswith("kept/trainyard-step-")
    body = anna.user.client("s3").get_object(Bucket="data", Key=key)["Body"].read()
    saved = torch.load(io.BytesIO(body))
    assert saved["step"] >= 12
    assert set(saved["models"][0]) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    told = anna.run("plain", SCRIPT, **debugged())
    assert told["TrainingJobStatus"] == "Completed", told
    assert any(key.endswith(".arrows") for key in anna.keys("tensors/plain/debug-output/steps/worker_0/"))


def test_a_finding_stops_its_program_without_namespaces_too(bare_world: World) -> None:
    """Test the event socket and its effect, with only the standard library."""
    program = (
        "import json, os, socket, time\n"
        "folder = os.open(os.environ['TRAINYARD_HOOK'] + '/.trainyard', os.O_RDONLY)\n"
        "connection = socket.socket(socket.AF_UNIX)\n"
        "connection.connect(f'/proc/self/fd/{folder}/told')\n"
        "finding = {'step': 7, 'tensor': 'loss', 'message': 'It is not a number.'}\n"
        "payload = {'rule': 'nan', 'status': 'IssuesFound', 'worker': 'worker_0', 'finding': finding}\n"
        "connection.sendall(json.dumps({'kind': 'rule', 'payload': payload}).encode() + b'\\n')\n"
        "time.sleep(600)\n"
    )
    verdict = bare_world.run(program, debugger=debugger(RuleSpec("nan", "NotANumber", actions=STOP)))
    assert (verdict["outcome"], verdict["reason"]) == (
        "stopped",
        'The rule "nan" found an issue at step 7 in loss and stopped the training: It is not a number.',
    )
