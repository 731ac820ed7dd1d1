import subprocess
import sys
from contextlib import closing
from pathlib import Path

from trainyard.instance.agent.data.object_store import open_store
from trainyard.link.contract import ObjectsSpec
from trainyard.objects.filesystem import FilesystemObjects

# Prints the third-party modules that are imported after a local store was opened.
_OPENS = """
import sys
before = set(sys.modules)
from trainyard.instance.agent.data.object_store import open_store
from trainyard.link.contract import ObjectsSpec
open_store(ObjectsSpec(sys.argv[1])).close()
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(roots - set(sys.stdlib_module_names) - {"trainyard"}), "trainyard.objects.remote" in sys.modules)
"""


def test_a_folder_of_this_machine_is_opened_as_such(tmp_path: Path) -> None:
    with closing(open_store(ObjectsSpec(str(tmp_path)))) as store:
        assert isinstance(store, FilesystemObjects)


def test_only_a_remote_store_needs_more_than_the_standard_library(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _OPENS, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout == "[] False\n"
