from trainyard.insight.comparison import CodeFile, JobFacts
from trainyard.server.dashboard.pages.compare.job_code import differing_files


def job(name: str, files: dict[str, bytes]) -> JobFacts:
    return JobFacts(name, {}, {path: CodeFile.of(content) for path, content in files.items()})


def test_each_file_that_differs_has_its_lines() -> None:
    first = job("a", {"same.py": b"x = 1\n", "train.py": b"lr = 1\nn = 2\n", "old.py": b"pass\n", "data": b"\0\1"})
    second = job("b", {"same.py": b"x = 1\n", "train.py": b"lr = 1\nn = 3\n", "new.py": b"pass\n", "data": b"\0\2"})
    found = differing_files(first, second)
    assert found["total"] == 4
    files = {each["name"]: (each["state"], each["lines"]) for each in found["files"]}
    assert files["train.py"] == ("changed", ["@@ -1,2 +1,2 @@", " lr = 1", "-n = 2", "+n = 3"])
    assert files["new.py"] == ("added", ["@@ -0,0 +1 @@", "+pass"])
    assert files["old.py"] == ("removed", ["@@ -1 +0,0 @@", "-pass"])
    assert files["data"] == ("changed", ["The file is no text, or too long to be shown."])


def test_long_files_are_not_compared_line_by_line() -> None:
    """A file of many equal lines would keep a thread busy for minutes."""
    first, second = job("a", {"x": b"a\nb\n" * 10_000}), job("b", {"x": b"b\na\n" * 10_000})
    (file,) = differing_files(first, second)["files"]
    assert file["lines"] == ["The file has more than 4,000 lines; they are not compared one by one here."]


def test_the_lines_of_all_files_together_are_limited() -> None:
    first = job("a", {f"{number}": b"".join(b"%d\n" % line for line in range(1500)) for number in range(5)})
    found = differing_files(first, job("b", {}))
    assert sum(len(each["lines"]) for each in found["files"]) <= 5000
    assert [each["isCut"] for each in found["files"]] == [False, False, False, True, True]
