"""A program that answers as docker does, over files of a folder: no Docker Engine runs where these tests do.

The same is asked of a real podman in tests/system.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.engines.container.store import ImageStore

PROGRAM = """#!/bin/sh
cd "$(dirname "$0")" || exit 1
case "$1" in
images) cat names ;;
image)
    shift 2
    separator='['
    for id in "$@"; do printf '%s' "$separator"; cat "${id#sha256:}.json"; separator=','; done
    echo ']' ;;
tag)
    id=$(grep " $2\\$" names | cut -d' ' -f1)
    grep -v " $3\\$" names > rest
    { cat rest; echo "$id $3"; } > names ;;
build)
    echo "$@" > built
    echo 'STEP 1: FROM somewhere'
    exit "$(cat status)" ;;
*) echo "unknown command $1" >&2; exit 125 ;;
esac
"""


@dataclass(frozen=True)
class PretendedTool:
    folder: Path

    @classmethod
    def made_in(cls, folder: Path) -> "PretendedTool":
        folder.mkdir(parents=True)
        (folder / "names").touch()
        (folder / "status").write_text("0")
        program = folder / "docker"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        return cls(folder)

    @property
    def store(self) -> ImageStore:
        return ImageStore(str(self.folder / "docker"))

    def add(self, *names: str, number: int = 1, **described: Any) -> str:
        """Keep an image under some names; its id."""
        bare = f"{number:064x}"
        image = {
            "Id": f"sha256:{bare}",
            "Size": 1000 * number,
            "Created": "2026-07-01T12:00:00.123456789Z",
            "RootFS": {"Type": "layers", "Layers": [f"sha256:{number + 100:064x}"]},
        }
        (self.folder / f"{bare}.json").write_text(json.dumps(image | described))
        with (self.folder / "names").open("a") as file:
            file.writelines(f"sha256:{bare} {name}\n" for name in names or ("<none>:<none>",))
        return f"sha256:{bare}"

    def fail(self, status: int) -> None:
        (self.folder / "status").write_text(str(status))

    @property
    def names(self) -> dict[str, str]:
        pairs = (line.split() for line in (self.folder / "names").read_text().splitlines())
        return {name: identifier for identifier, name in pairs}

    @property
    def built(self) -> list[str]:
        """The words of the last build; none when nothing was built."""
        file = self.folder / "built"
        return file.read_text().split() if file.exists() else []
