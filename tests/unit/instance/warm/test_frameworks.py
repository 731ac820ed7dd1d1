import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.instance.warm.frameworks import imported_modules, is_known, preloads, summarize_code, used_frameworks
from trainyard.instance.warm.worker import UnfitWorker, preload


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        (b"import torch", {"torch"}),
        (b"import torch.nn as nn, numpy", {"torch.nn", "numpy"}),
        (b"from torch.utils import data", {"torch.utils"}),
        (b"    import sklearn  # later", {"sklearn"}),
        (b"try:\n\tfrom scipy.stats import norm\nexcept ImportError: pass", {"scipy.stats"}),
        (b"import a; import b", {"a"}),
        (b"from . import helpers\nfrom .torch import x", set()),
        (b"# import torch\nprint('import torch')\nimportant = 1\nfrom_torch = 2", set()),
        (b"import \xff\xfe", set()),
        (b"", set()),
    ],
)
def test_imports_are_read_from_the_source(text: bytes, modules: set[str]) -> None:
    assert imported_modules(text) == modules


def test_a_package_built_on_a_framework_counts_as_the_framework() -> None:
    assert used_frameworks({"torchvision.transforms", "numpy", "os"}) == ("numpy", "torch")
    assert used_frameworks({"os", "torchy"}) == ()


def test_framework_modules_that_a_program_names_are_imported_besides_the_common_ones() -> None:
    modules = preloads(
        ("torch",), {"torch", "torch.nn.utils.prune", "torch.utils.tensorboard", "torchvision.models", "os"}
    )
    assert modules[0] == "torch"
    assert "torch._dynamo" in modules
    assert modules[-1] == "torch.nn.utils.prune"
    assert len(set(modules)) == len(modules)


HOSTILE = (
    "numpy.f2py.__main__",
    "numpy.f2py",
    "numpy.__main__",
    "numpy.testing",
    "torch.distributed.run",
    "torch.utils.tensorboard",
    "torch.utils.cpp_extension",
    "torch.utils.bottleneck.__main__",
    "torch.__main__",
    "sklearn.conftest",
    "pandas.conftest",
    "scipy._lib._uarray",
    "os",
    "antigravity",
    "__main__",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_module_is_imported_that_is_not_known_whatever_a_source_names(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text(f"import torch, numpy, sklearn, pandas, scipy\nif 0:\n    import {name}\n")
    source = summarize_code(tmp_path, "train.py")
    assert name not in source.modules
    assert not is_known(name)
    assert all(map(is_known, source.modules))
    with pytest.raises(UnfitWorker, match=f"may not import {name}"):
        preload([name], ["/"])


def test_a_module_is_not_executed_when_it_comes_from_where_nothing_was_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pandas").mkdir()
    (tmp_path / "pandas" / "__init__.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pandas"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnfitWorker, match="which was not examined"):
        preload(["pandas"], ["/usr/lib"])
    assert not (tmp_path / "executed").exists()


def test_a_code_folder_is_looked_through_from_its_script_to_its_depths(tmp_path: Path) -> None:
    files = {"src/train.py": "from helpers import x", "src/helpers.py": "", "lib/deep/numbers.py": "import pandas"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    source = summarize_code(tmp_path, "src/train.py")
    assert source.frameworks == ("pandas",)
    assert source.importable_names == {"src", "lib", "train", "helpers"}
    assert source.all_names == {"src", "lib", "train", "helpers", "deep", "numbers"}
    assert source.is_complete


def test_links_and_pipes_in_the_code_are_not_read(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (tmp_path / "outside.py").write_text("import torch")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.py").write_text("import torch")
    (code / "link.py").symlink_to(tmp_path / "outside.py")
    (code / "linked").symlink_to(tmp_path / "folder")
    os.mkfifo(code / "pipe.py")
    assert summarize_code(code, "train.py").frameworks == ()


def test_a_code_folder_with_too_much_in_it_is_not_looked_through_whole(tmp_path: Path) -> None:
    for number in range(5001):
        (tmp_path / f"{number}.csv").touch()
    assert not summarize_code(tmp_path, "train.py").is_complete


def test_a_code_folder_of_any_depth_is_looked_through(tmp_path: Path) -> None:
    deepest = str(tmp_path / "d")
    for _ in range(1200):  # one by one, since all that makes or removes them at once calls itself for each
        os.mkdir(deepest)  # noqa: PTH102
        deepest += "/d"
    Path(deepest).with_name("train.py").write_text("import torch")
    try:
        assert summarize_code(tmp_path, "train.py").frameworks == ("torch",)
    finally:
        subprocess.run(["rm", "-r", str(tmp_path / "d")], check=True)
