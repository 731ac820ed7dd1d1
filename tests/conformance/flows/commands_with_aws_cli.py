"""Commands that people type: aws s3 mb, cp, sync, ls, rm and rb, and a call to each of the small services."""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

# Not through its shebang line, which breaks if the path to Python contains a space.
AWS = (sys.executable, Path(sys.executable).with_name("aws"))
TRUST = '{"Statement": [{"Effect": "Allow", "Principal": {"Service": "x.amazonaws.com"}, "Action": "sts:AssumeRole"}]}'


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        objects(Path(folder))
    small_services()


def objects(folder: Path) -> None:
    bucket = f"cli-{uuid.uuid4().hex[:12]}"
    aws("s3", "mb", f"s3://{bucket}")
    assert bucket in aws("s3", "ls")
    source = make_files(folder / "source")
    large = source / "large.bin"
    # Above 8 MiB, the CLI uploads in parts.
    large.write_bytes(os.urandom(9 * 1024 * 1024))
    aws("s3", "cp", large, f"s3://{bucket}/copied/large.bin")
    aws("s3", "cp", f"s3://{bucket}/copied/large.bin", folder / "back.bin")
    assert (folder / "back.bin").read_bytes() == large.read_bytes()
    assert aws("s3", "cp", f"s3://{bucket}/copied/large.bin", f"s3://{bucket}/again.bin")
    aws("s3", "sync", source, f"s3://{bucket}/tree")
    assert aws("s3", "sync", source, f"s3://{bucket}/tree") == "", "a second sync has nothing to do"
    assert "tree/" in aws("s3", "ls", f"s3://{bucket}/")
    assert len(aws("s3", "ls", "--recursive", f"s3://{bucket}/tree/").splitlines()) == len(contents(source))
    aws("s3", "sync", f"s3://{bucket}/tree", folder / "target")
    assert contents(folder / "target") == contents(source)
    (source / "a.txt").unlink()
    assert "delete:" in aws("s3", "sync", "--delete", source, f"s3://{bucket}/tree")
    assert aws("s3", "cp", f"s3://{bucket}/tree/deep/er/b.txt", "-") == "second\n"
    aws("s3", "rm", f"s3://{bucket}/again.bin")
    aws("s3", "rm", "--recursive", f"s3://{bucket}/")
    assert aws("s3", "ls", "--recursive", f"s3://{bucket}") == ""
    aws("s3", "rb", f"s3://{bucket}")
    assert bucket not in aws("s3", "ls")
    assert "NoSuchBucket" in refused("s3", "ls", f"s3://{bucket}")


def make_files(folder: Path) -> Path:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("first\n")
    (folder / "deep" / "er" / "b.txt").write_text("second\n")
    (folder / "deep" / "späte Größe +1.txt").write_text("third\n")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def small_services() -> None:
    account = parsed("sts", "get-caller-identity")["Account"]
    role = f"cli-{uuid.uuid4().hex[:12]}"
    made = parsed("iam", "create-role", "--role-name", role, "--assume-role-policy-document", TRUST)
    assert made["Role"]["Arn"] == f"arn:aws:iam::{account}:role/{role}"
    aws("iam", "delete-role", "--role-name", role)
    group = f"/cli/{uuid.uuid4().hex[:12]}"
    stream = ("--log-group-name", group, "--log-stream-name", "one")
    aws("logs", "create-log-group", "--log-group-name", group)
    aws("logs", "create-log-stream", *stream)
    now = int(time.time() * 1000)
    aws("logs", "put-log-events", *stream, "--log-events", f"timestamp={now},message=hello")
    assert [event["message"] for event in parsed("logs", "get-log-events", *stream)["events"]] == ["hello"]
    aws("logs", "delete-log-group", "--log-group-name", group)
    namespace = f"Cli/{uuid.uuid4().hex[:12]}"
    aws("cloudwatch", "put-metric-data", "--namespace", namespace, "--metric-name", "loss", "--value", "0.5")
    listed = parsed("cloudwatch", "list-metrics", "--namespace", namespace)["Metrics"]
    assert [metric["MetricName"] for metric in listed] == ["loss"]


def parsed(*arguments: str | Path) -> Any:
    return json.loads(aws(*arguments))


def aws(*arguments: str | Path) -> str:
    run = subprocess.run([*AWS, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"aws {arguments}: {run.stderr}{run.stdout}"
    return run.stdout


def refused(*arguments: str | Path) -> str:
    run = subprocess.run([*AWS, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode != 0, f"aws {arguments} should have been refused: {run.stdout}"
    return run.stderr


main()
