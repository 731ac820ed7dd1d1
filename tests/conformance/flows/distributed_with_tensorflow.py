"""TensorFlow on three instances with estimators: parameter servers, and mirrored workers.

Its argument is the package of the estimators, sagemaker or trainyard.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

estimating: Any = importlib.import_module("estimating")

TELL = """
import json, os, pathlib, time
import tensorflow as tf

config = json.loads(os.environ["TF_CONFIG"])
kind, index = config["task"]["type"], config["task"]["index"]

def tell(**told):
    told |= {"kind": kind, "index": index, "sizes": {name: len(at) for name, at in config["cluster"].items()}}
    pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], os.environ["SM_CURRENT_HOST"] + ".json").write_text(json.dumps(told))
"""
# A variable on each server that the master and the workers increment; the master ends when all are done.
SERVED = f"""{TELL}
tf1 = tf.compat.v1
tf1.disable_eager_execution()
server = tf1.train.Server(config["cluster"], job_name=kind, task_index=index)
totals = []
for number in range(len(config["cluster"]["ps"])):
    with tf1.device(f"/job:ps/task:{{number}}"):
        totals.append(tf1.get_variable(f"total-{{number}}", shape=[], initializer=tf1.zeros_initializer()))
with tf1.device("/job:ps/task:0"):
    done = tf1.get_variable("done", shape=[], initializer=tf1.zeros_initializer())
place = 0 if kind == "master" else 1 + index
adds = [tf1.assign_add(total, 10.0 ** place, use_locking=True) for total in totals]
leave, missing = tf1.assign_add(done, 1.0, use_locking=True), tf1.report_uninitialized_variables()

def until(is_so):
    while not is_so():
        time.sleep(0.05)

with tf1.Session(server.target) as session:
    if kind == "master":
        session.run(tf1.global_variables_initializer())
    until(lambda: len(session.run(missing)) == 0)
    session.run(adds)
    until(lambda: all(total == 111.0 for total in session.run(totals)))
    tell(totals=[float(total) for total in session.run(totals)])
    session.run(leave)
    if kind == "master":
        until(lambda: session.run(done) == 3.0)
"""
MIRRORED = f"""{TELL}
strategy = tf.distribute.MultiWorkerMirroredStrategy()

@tf.function
def total():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(10.0 ** index)))

tell(totals=[float(total())], replicas=strategy.num_replicas_in_sync)
"""


def main(package: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kit = estimating.kit_of(package, folder)
        told = ran(kit, SERVED, {"parameter_server": {"enabled": True}})
        assert [(each["kind"], each["index"]) for each in told] == [("master", 0), ("worker", 0), ("worker", 1)]
        assert [each["sizes"] for each in told] == [{"master": 1, "worker": 2, "ps": 3}] * 3
        assert [each["totals"] for each in told] == [[111.0] * 3] * 3
        told = ran(kit, MIRRORED, {"multi_worker_mirrored_strategy": {"enabled": True}})
        assert [(each["kind"], each["index"]) for each in told] == [("worker", number) for number in range(3)]
        assert [(each["totals"], each["replicas"]) for each in told] == [([111.0], 3)] * 3


def ran(kit: Any, script: str, distribution: dict[str, Any]) -> list[Any]:
    """Return the output of each instance of a completed job."""
    source = Path(kit.folder, next(iter(distribution)))
    source.mkdir()
    (source / "train.py").write_text(script)
    job = kit.of("tensorflow", "TensorFlow")(
        entry_point="train.py",
        source_dir=str(source),
        role=kit.role,
        framework_version="2.11",
        py_version="py39",
        instance_count=3,
        instance_type="ml.m5.xlarge",
        distribution=distribution,
        sagemaker_session=kit.session,
    )
    job.fit(logs=False)
    told: list[Any] = kit.told(job)
    return told


main(*sys.argv[1:])
