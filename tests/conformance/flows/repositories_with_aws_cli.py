"""The usual commands around a custom image: create a repository, log in, and list the images.

Its arguments are the name of an image without its tag, and the tag.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# Not through its shebang line, which breaks if the path to Python contains a space.
AWS = (sys.executable, Path(sys.executable).with_name("aws"))


def main(name: str, tag: str) -> None:
    asked = ("describe-repositories", "--repository-names", name)
    assert "RepositoryNotFoundException" in ecr(*asked).stderr
    made = told("create-repository", "--repository-name", name)["repository"]
    assert told(*asked)["repositories"] == [made]
    assert len(ecr("get-login-password").stdout.strip()) > 40
    query = ("--query", "imageDetails[].imageTags[]")
    assert told("describe-images", "--repository-name", name, "--image-ids", f"imageTag={tag}", *query) == [tag]
    refused = ecr("describe-images", "--repository-name", name, "--image-ids", "imageTag=absent")
    assert "ImageNotFoundException" in refused.stderr
    refused = ecr("put-image", "--repository-name", name, "--image-manifest", "{}")
    assert refused.returncode != 0
    assert "PutImage" in refused.stderr
    told("delete-repository", "--repository-name", name, "--force")


def told(*arguments: str) -> Any:
    run = ecr(*arguments)
    assert run.returncode == 0, f"aws ecr {arguments}: {run.stderr}{run.stdout}"
    return json.loads(run.stdout)


def ecr(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*AWS, "ecr", *arguments], capture_output=True, text=True, check=False)


main(*sys.argv[1:])
