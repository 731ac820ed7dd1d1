"""The packages that a job asks for."""

from pathlib import Path

import pytest

from trainyard.instance.agent.program.requirements import PackageRequests, read_package_requests

INSTALLED = {"torch": "2.13.0+cpu", "numpy": "2.4.6", "typing-extensions": "4.16.0", "odd": "1.0rc1"}


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    return tmp_path


def wanted(ml: Path, text: str, **others: str) -> PackageRequests:
    (ml / "code" / "requirements.txt").write_text(text)
    for name, content in others.items():
        (ml / "code" / f"{name}.txt").write_text(content)
    return read_package_requests("train.py", ml)


def test_only_a_python_program_uses_the_requirements_beside_it(ml: Path) -> None:
    assert not read_package_requests("train.py", ml)
    assert wanted(ml, "numpy\n").lines == {"numpy"}
    assert read_package_requests("-m package.train", ml)
    assert not read_package_requests("run.sh", ml)
    assert not read_package_requests("run", ml)
    assert not read_package_requests("", ml)


def test_a_list_that_is_a_link_is_not_read(ml: Path) -> None:
    (ml / "code" / "requirements.txt").symlink_to("/etc/passwd")
    assert not read_package_requests("train.py", ml)


def test_comments_spaces_and_the_order_of_lines_do_not_matter(ml: Path) -> None:
    plain = wanted(ml, "numpy>=2\ntorch\n")
    assert wanted(ml, "# what we need\n\n torch   # the framework\r\nnumpy>=2\n") == plain
    assert wanted(ml, "numpy\\\n>=2\ntorch") != plain  # a different text, so it is installed again
    assert wanted(ml, "numpy>=3\ntorch\n") != plain


def test_lists_that_are_included_count_with_what_they_say(ml: Path) -> None:
    first = wanted(ml, "-r more.txt\n-climits.txt\n", more="numpy\n--requirement=more.txt\n", limits="numpy<3\n")
    assert first.lines == {"numpy", "constraint numpy<3"}
    assert not first.is_job_specific
    assert wanted(ml, "-r more.txt\n-climits.txt\n", more="numpy\n", limits="numpy<2\n") != first


@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        "--editable ./library",
        "./library",
        "library.whl",
        "../library-1.0.tar.gz",
        "library @ git+https://example.org/library.git",
        "https://example.org/library-1.0.zip",
        "-r missing.txt",
        "-r ../outside.txt",
        "-r https://example.org/list.txt",
        "-f wheels/",
        "--index-url https://${TOKEN}@example.org/simple",
    ],
)
def test_what_depends_on_more_than_the_list_is_job_specific(ml: Path, line: str) -> None:
    found = wanted(ml, f"numpy\n{line}\n")
    assert found.is_job_specific
    assert not found.is_satisfied_by(INSTALLED), "it may ask for more than the list does"


@pytest.mark.parametrize(
    "line",
    [
        "numpy==2.0 ; python_version < '3.12' and sys_platform == 'linux/x'",
        "--index-url https://example.org/simple",
        "--find-links=/opt/wheels",
        "--pre",
        "package[extra]~=1.2",
    ],
)
def test_a_complete_list_is_not_job_specific(ml: Path, line: str) -> None:
    assert not wanted(ml, f"numpy\n{line}\n").is_job_specific


@pytest.mark.parametrize(
    "text",
    ["", "torch", "torch==2.13.0", "Torch >= 2", "numpy>=2.4.6\ntyping_extensions\n", "numpy == 2.4.6.0", "odd"],
)
def test_what_is_present_is_not_installed(ml: Path, text: str) -> None:
    assert wanted(ml, text).is_satisfied_by(INSTALLED)


@pytest.mark.parametrize(
    "text",
    ["pandas", "torch==1.0", "numpy>=3", "numpy<3", "torch[extra]", "odd>=1", "numpy; extra == 'a'", "--pre", "-e ."],
)
def test_what_is_not_certainly_present_is_left_to_a_resolver(ml: Path, text: str) -> None:
    assert not wanted(ml, text).is_satisfied_by(INSTALLED)


def test_code_with_a_setup_is_a_package(ml: Path) -> None:
    (ml / "code" / "setup.py").write_text("")
    found = read_package_requests("package.train", ml)
    assert (found.package, found.is_job_specific, found.shown) == ("setup.py", True, "setup.py")
    assert wanted(ml, "numpy").shown == "requirements.txt and setup.py"
    assert not read_package_requests("run.sh", ml)


def test_a_pyproject_is_a_package_only_with_a_build_system(ml: Path) -> None:
    (ml / "code" / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert not read_package_requests("train.py", ml)
    (ml / "code" / "pyproject.toml").write_text('[build-system]\nrequires = ["hatchling"]\n')
    assert read_package_requests("train.py", ml).package == "pyproject.toml"
