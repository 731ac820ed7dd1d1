"""TensorBoard on an s3:// logdir: its writer, its reader, and its server answering over HTTP."""

import json
import re
import subprocess
import sys
import time
import urllib.request
import uuid
from typing import Any

import boto3
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

LOSSES = [1.0, 0.5, 0.25, 0.125]


def main() -> None:
    bucket = f"tensorboard-{uuid.uuid4().hex[:12]}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    logdir = f"s3://{bucket}/runs"
    write_run(f"{logdir}/first")
    assert read_run(f"{logdir}/first") == LOSSES
    assert serve(logdir) == LOSSES


def write_run(folder: str) -> None:
    writer = EventFileWriter(folder)
    for step, loss in enumerate(LOSSES):
        summary = Summary(value=[Summary.Value(tag="loss", simple_value=loss)])
        writer.add_event(Event(wall_time=1_700_000_000 + step, step=step, summary=summary))
    writer.close()


def read_run(folder: str) -> list[float]:
    reader = event_accumulator.EventAccumulator(folder)
    reader.Reload()
    return [each.value for each in reader.Scalars("loss")]


def serve(logdir: str) -> list[float]:
    """Return the answer of the scalars plug-in of a running TensorBoard, once it has loaded the run."""
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        logdir,
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--load_fast",
        "false",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = read_address(server)
            points = eventually(lambda: fetch(f"{address}data/plugin/scalars/scalars?run=first&tag=loss"))
            return [value for _, _, value in points]
        finally:
            server.kill()


def read_address(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    for line in server.stderr:
        if found := re.search(r"http://\S+:\d+/", line):
            return found.group().replace("localhost", "127.0.0.1")
    raise AssertionError("TensorBoard ended without an address")


def eventually(attempt: Any) -> Any:
    """Retry for up to half a minute; TensorBoard answers 404 until a run is loaded."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return attempt()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


main()
