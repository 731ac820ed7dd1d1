"""Checkpoints and TensorBoard files of jobs: restored, stored while the program runs, and complete at its end."""

import os
import signal
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from tests.system.watching import folder_of, living_agents, place_of
from trainyard.link.contract import FrameKind
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import read_frames
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard

# `go(1)` waits until the test lets the program continue.
PRELUDE = """
import os, signal, sys, time
root = "/opt/ml/checkpoints"
host = os.environ["SM_CURRENT_HOST"]

def go(step):
    print("at", step, flush=True)
    while not os.path.exists(f"/opt/ml/go-{step}"):
        time.sleep(0.02)

def save(name, data):
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "wb") as file:
        file.write(data)
    os.replace(path + ".tmp", path)
"""
SAVES = """
save("first.pt", b"1" * 3_000_000)
save("été/step 2/ü.pt", b"2")
log = open(root + "/train.log", "w")
print("line 1", file=log, flush=True)
held = open(root + "/held.pt", "wb", buffering=0)
held.write(b"half")
go(1)
os.remove(root + "/first.pt")
os.rename(root + "/été/step 2", root + "/été/step 3")
held.write(b" and half")
held.close()
for number in range(2, 2000):
    print("line", number, file=log, flush=True)
    time.sleep(0.05)
    if os.path.exists("/opt/ml/go-2"):
        break
save("last.pt", b"9" * 100_000)
os.remove(root + "/held.pt")
"""
COUNTS = """
root = "/state"
path = os.path.join(root, "step")
step = int(open(path).read()) + 1 if os.path.exists(path) else 1
print("step", step, sorted(os.listdir(root)), flush=True)
with open(path, "w") as file:
    file.write(str(step))
with open(os.path.join(root, "history.txt"), "a") as file:
    file.write(f"{step};")
"""
LIVES_ON = """
path = root + "/step"
step = int(open(path).read()) if os.path.exists(path) else 0
print("begins at", step, flush=True)
while step < 3:
    step += 1
    save("step", str(step).encode())
    go(step)
"""
SAVES_WHEN_STOPPED = """
def stop(*_):
    save("on-term.pt", b"saved on SIGTERM")
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
save("early.pt", b"early")
go(1)
"""


@pytest.fixture(scope="module")
def anna(administrator: User) -> Trainee:
    return Trainee(administrator.add_user("anna")).prepare()


def checkpoints(prefix: str, **members: str) -> dict[str, Any]:
    return {"CheckpointConfig": {"S3Uri": f"s3://data/ck/{prefix}", **members}}


def stored(anna: Trainee, prefix: str) -> dict[str, bytes]:
    """Return every object under a prefix by the rest of its key, without those deleted meanwhile."""
    s3, found = anna.user.client("s3"), {}
    for key in anna.keys(f"{prefix}/"):
        try:
            body = s3.get_object(Bucket=anna.bucket, Key=key)["Body"].read()
        except ClientError:
            continue
        found[key.removeprefix(f"{prefix}/")] = body
    return found


def let_go(folder: InstanceFolder, step: int) -> None:
    (folder.ml / f"go-{step}").touch()


def notes(folder: InstanceFolder) -> list[str]:
    return [frame.payload["text"] for frame in read_frames(folder.spool, 0).frames if frame.kind is FrameKind.NOTE]


def test_checkpoints_are_in_s3_while_the_job_runs_and_whole_at_its_end(anna: Trainee, yard: RunningYard) -> None:
    anna.start("saves", PRELUDE + SAVES, **checkpoints("saves"))
    anna.await_line("saves", "at 1")
    early = {"first.pt": b"1" * 3_000_000, "été/step 2/ü.pt": b"2", "train.log": b"line 1\n"}
    # A file that is being written is not stored yet, unless it is a log.
    eventually(lambda: stored(anna, "ck/saves") == early, within=timedelta(seconds=60))
    let_go(place_of(yard, "saves"), 1)
    eventually(lambda: stored(anna, "ck/saves").get("held.pt") == b"half and half", within=timedelta(seconds=60))
    eventually(lambda: set(stored(anna, "ck/saves")) == {"held.pt", "été/step 3/ü.pt", "train.log"})
    eventually(lambda: len(stored(anna, "ck/saves")["train.log"]) > len(b"line 1\n"), within=timedelta(seconds=60))
    let_go(place_of(yard, "saves"), 2)
    told = anna.reach("saves", "Completed", "Failed")
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    assert told["CheckpointConfig"] == {"S3Uri": "s3://data/ck/saves"}
    found = stored(anna, "ck/saves")
    assert set(found) == {"été/step 3/ü.pt", "train.log", "last.pt"}
    assert found["last.pt"] == b"9" * 100_000
    assert found["train.log"].startswith(b"line 1\nline 2\nline 3\n")
    assert found["train.log"].endswith(b"\n")
    statuses = [step["Status"] for step in told["SecondaryStatusTransitions"]]
    assert statuses == ["Pending", "Starting", "Downloading", "Training", "Uploading", "Completed"]


@pytest.mark.slow
def test_a_reader_never_sees_half_of_a_file_that_is_written_slowly_and_in_place(anna: Trainee) -> None:
    script = f"""{PRELUDE}
for turn in range(5):
    with open(root + "/model.pt", "wb", buffering=0) as file:
        for _ in range(3):
            file.write(str(turn).encode() * 100_000)
            time.sleep(1.2)
    time.sleep(1)
"""
    anna.start("slow", script, **checkpoints("slow"))
    seen: set[bytes] = set()
    while anna.describe("slow")["TrainingJobStatus"] == "InProgress":
        seen |= set(stored(anna, "ck/slow").values())
    assert seen <= {str(turn).encode() * 300_000 for turn in range(5)}
    assert len(seen) >= 2
    assert stored(anna, "ck/slow") == {"model.pt": b"4" * 300_000}


@pytest.mark.flow
def test_a_second_job_continues_where_the_first_ended_in_a_folder_of_any_name(anna: Trainee) -> None:
    config = checkpoints("counts/", LocalPath="/state")
    for number, listed in enumerate(([], ["history.txt", "step"], ["history.txt", "step"]), start=1):
        name = f"counts-{number}"
        told = anna.run(name, PRELUDE + COUNTS, **config)
        assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), anna.lines(name))
        assert anna.printed(name) == [f"step {number} {listed}"]
    assert stored(anna, "ck/counts") == {"step": b"3", "history.txt": b"1;2;3;"}


def test_a_job_whose_agent_is_killed_resumes_from_its_checkpoint(anna: Trainee, yard: RunningYard) -> None:
    retry = {"RetryStrategy": {"MaximumRetryAttempts": 1}}
    anna.start("killed", PRELUDE + LIVES_ON, **checkpoints("killed"), **retry)
    anna.await_line("killed", "at 1")
    let_go(place_of(yard, "killed"), 1)
    eventually(lambda: stored(anna, "ck/killed") == {"step": b"2"}, within=timedelta(seconds=60))
    (agent,) = living_agents(yard, "killed")
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: "begins at 2" in anna.printed("killed", instance=1), within=timedelta(seconds=60))
    let_go(place_of(yard, "killed"), 3)
    told = anna.reach("killed", "Completed", "Failed")
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    assert stored(anna, "ck/killed") == {"step": b"3"}


def test_a_job_that_is_lost_leaves_its_checkpoints_to_the_next_one(anna: Trainee, yard: RunningYard) -> None:
    anna.start("lost", PRELUDE + LIVES_ON, **checkpoints("lost"))
    eventually(lambda: stored(anna, "ck/lost") == {"step": b"1"}, within=timedelta(seconds=90))
    (agent,) = living_agents(yard, "lost")
    os.kill(agent, signal.SIGKILL)
    assert anna.reach("lost", "Failed", "Completed")["TrainingJobStatus"] == "Failed"
    anna.start("found", PRELUDE + LIVES_ON, **checkpoints("lost"))
    anna.await_line("found", "begins at 1")
    for step in (2, 3):
        let_go(place_of(yard, "found"), step)
    assert anna.reach("found", "Completed", "Failed")["TrainingJobStatus"] == "Completed"
    assert stored(anna, "ck/lost") == {"step": b"3"}


def test_what_a_stopped_program_saves_in_its_grace_is_stored(anna: Trainee) -> None:
    anna.start("stopped", PRELUDE + SAVES_WHEN_STOPPED, **checkpoints("stopped"))
    anna.await_line("stopped", "at 1")
    anna.sagemaker.stop_training_job(TrainingJobName="stopped")
    assert anna.reach("stopped", "Stopped", "Failed")["TrainingJobStatus"] == "Stopped"
    assert stored(anna, "ck/stopped") == {"early.pt": b"early", "on-term.pt": b"saved on SIGTERM"}


def test_what_a_program_has_saved_when_its_time_is_over_is_stored(anna: Trainee) -> None:
    script = f'{PRELUDE}\nsave("a.pt", b"a")\nheld = open(root + "/open.pt", "wb", 0)\nheld.write(b"b")\ngo(1)\n'
    told = anna.run("late", script, **checkpoints("late"), StoppingCondition={"MaxRuntimeInSeconds": 2})
    assert told["SecondaryStatus"] == "MaxRuntimeExceeded"
    assert stored(anna, "ck/late") == {"a.pt": b"a", "open.pt": b"b"}


def test_what_a_failing_program_has_saved_is_stored(anna: Trainee) -> None:
    told = anna.run("fails", f'{PRELUDE}\nsave("a.pt", b"a")\nos.kill(os.getpid(), 9)\n', **checkpoints("fails"))
    assert told["TrainingJobStatus"] == "Failed"
    assert stored(anna, "ck/fails") == {"a.pt": b"a"}


def test_several_instances_share_a_location(anna: Trainee, yard: RunningYard) -> None:
    two = {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}}
    for name in ("kept", "old-algo-1", "old-algo-2"):
        anna.user.client("s3").put_object(Bucket=anna.bucket, Key=f"ck/shared/{name}", Body=b"old")
    script = f"""{PRELUDE}
assert sorted(os.listdir(root)) == ["kept", "old-algo-1", "old-algo-2"]
os.remove(f"{{root}}/old-{{host}}")
save(f"{{host}}/a.pt", host.encode())
save(f"{{host}}/b.pt", b"b")
save("same.pt", host.encode())
go(1)
os.remove(f"{{root}}/{{host}}/b.pt")
"""
    anna.start("shared", script, **checkpoints("shared"), **two)
    kept = {"kept": b"old", "old-algo-1": b"old", "old-algo-2": b"old"}
    wanted = {"algo-1/a.pt", "algo-1/b.pt", "algo-2/a.pt", "algo-2/b.pt", "same.pt", *kept}
    eventually(lambda: set(stored(anna, "ck/shared")) == wanted, within=timedelta(seconds=90))
    for instance in ("algo-1", "algo-2"):
        let_go(place_of(yard, "shared", instance=instance), 1)
    told = anna.reach("shared", "Completed", "Failed")
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    found = stored(anna, "ck/shared")
    assert found.pop("same.pt") in (b"algo-1", b"algo-2")
    assert found == {**kept, "algo-1/a.pt": b"algo-1", "algo-2/a.pt": b"algo-2"}
    first = folder_of(yard, "shared")
    both = [first, InstanceFolder(first.root.with_name("algo-2"))]
    assert any("s3://data/ck/shared/same.pt is written by" in note for folder in both for note in notes(folder))


def test_a_hostile_program_gets_nothing_of_the_machine_into_s3(anna: Trainee, yard: RunningYard) -> None:
    script = f"""{PRELUDE}
os.symlink("/etc", root + "/etc")
os.symlink("/etc/passwd", root + "/passwd")
os.mkfifo(root + "/pipe")
deep = root
for _ in range(100):
    deep += "/d"
    os.mkdir(deep)
open(root + "/good.pt", "w").write("good")
closed = root + "/closed"
os.mkdir(closed)
open(closed + "/inner.pt", "w").write("inner")
os.chmod(closed + "/inner.pt", 0)
os.chmod(closed, 0)
for turn in range(200):
    os.mkdir(root + "/swap")
    open(root + "/swap/passwd", "w").write("mine")
    os.rename(root + "/swap", root + "/swapped")
    os.symlink("/etc", root + "/swap")
    time.sleep(0.01)
    os.remove(root + "/swap")
    os.remove(root + "/swapped/passwd")
    os.rmdir(root + "/swapped")
"""
    told = anna.run("hostile", script, **checkpoints("hostile"))
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), anna.lines("hostile"))
    assert stored(anna, "ck/hostile") == {"good.pt": b"good", "closed/inner.pt": b"inner"}
    assert any(note.startswith("Links, pipes, sockets and devices") for note in notes(folder_of(yard, "hostile")))


def test_checkpoints_that_cannot_be_stored_fail_the_job_and_name_the_key(anna: Trainee, yard: RunningYard) -> None:
    s3 = anna.user.client("s3")
    s3.create_bucket(Bucket="fleeting")
    config = {"CheckpointConfig": {"S3Uri": "s3://fleeting/ck"}}
    anna.start("unstored", f'{PRELUDE}\ngo(1)\nsave("a.pt", b"a")\n', **config)
    anna.await_line("unstored", "at 1")
    s3.delete_bucket(Bucket="fleeting")
    let_go(place_of(yard, "unstored"), 1)
    told = anna.reach("unstored", "Completed", "Failed")
    assert told["TrainingJobStatus"] == "Failed"
    assert "s3://fleeting/ck/a.pt could not be synced" in told["FailureReason"]


@pytest.mark.slow
def test_tensorboard_files_are_where_clients_look_for_them_while_they_grow(anna: Trainee, yard: RunningYard) -> None:
    script = f"""{PRELUDE}
import json
root = json.load(open("/opt/ml/input/config/tensorboardoutputconfig.json"))["LocalPath"]
assert os.listdir(root) == []
os.mkdir(root + "/train")
events = open(root + "/train/events.out.tfevents.1.algo-1", "ab", 0)
while not os.path.exists("/opt/ml/go-1"):
    events.write(b"event ")
    time.sleep(0.05)
events.write(b"end")
"""
    key, config = "tb/curves/tensorboard-output", {"TensorBoardOutputConfig": {"S3OutputPath": "s3://data/tb"}}
    anna.user.client("s3").put_object(Bucket=anna.bucket, Key=f"{key}/before", Body=b"not restored")
    anna.start("curves", script, **config)
    name = "train/events.out.tfevents.1.algo-1"
    eventually(lambda: name in stored(anna, key), within=timedelta(seconds=90))
    early = len(stored(anna, key)[name])
    eventually(lambda: len(stored(anna, key)[name]) > early, within=timedelta(seconds=60))
    let_go(place_of(yard, "curves"), 1)
    told = anna.reach("curves", "Completed", "Failed")
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), anna.lines("curves"))
    assert told["TensorBoardOutputConfig"] == {"S3OutputPath": "s3://data/tb"}
    found = stored(anna, key)
    assert set(found) == {"before", name}
    assert found[name].endswith(b"event end")
