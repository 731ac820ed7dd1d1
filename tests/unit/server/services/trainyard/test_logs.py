import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from tests.unit.server.services.trainyard.test_jobs import start
from trainyard.formats.logs import LogWriter
from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import ResourceKey
from trainyard.server.services.contract import Call
from trainyard.server.services.trainyard.logs import download_log
from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest

Write = tuple[int, bytes]


def log_folder(user: As, instance: str = "algo-1", attempt: int = 1) -> Path:
    resource = user.yard.records.load(ResourceKey(user.account, KIND, "mnist"))
    return InstanceRef(AttemptRef(resource.id, attempt), instance).folder(user.yard.compute.jobs).logs


def write(user: As, writes: Sequence[Write], instance: str = "algo-1", attempt: int = 1) -> None:
    with LogWriter(log_folder(user, instance, attempt)) as writer:
        for ms, data in writes:
            writer.append(data, ms)


def read(user: As, **asked: Any) -> dict[str, Any]:
    return user("trainyard", "ReadLog", TrainingJobName="mnist", **asked)


def search(user: As, pattern: dict[str, Any], **asked: Any) -> dict[str, Any]:
    return user("trainyard", "SearchLog", TrainingJobName="mnist", Pattern=pattern, **asked)


def search_all(user: As, pattern: dict[str, Any], **asked: Any) -> list[tuple[str, int, int]]:
    """Return the instance, the line and the place of all matches, page by page."""
    found, token = list[tuple[str, int, int]](), dict[str, str]()
    for _ in range(1000):
        page = search(user, pattern, **asked, **token)
        assert page["MatchCount"] == len(page["Matches"])
        found += [(each["Instance"], each["Line"], each["Place"]) for each in page["Matches"]]
        if not page["NextToken"]:
            return found
        token = {"NextToken": page["NextToken"]}
    raise AssertionError("the search does not end")


def texts(answer: dict[str, Any]) -> list[str]:
    return [line["Text"] for line in answer["Lines"]]


@pytest.fixture
def job(anna: As) -> As:
    create(anna)
    start(anna)
    return anna


@pytest.fixture
def group(anna: As) -> As:
    """Return the owner of a job with two instances, which write in turns."""
    create(anna)
    instances = (InstanceState("algo-1"), InstanceState("algo-2"))
    began = replace(load(anna), attempts=(Attempt(1, seconds(1), "KEY", instances),))
    remember(anna, advance(began, SecondaryStatus.STARTING, at=seconds(1)))
    for number, name in enumerate(("algo-1", "algo-2")):
        write(anna, [(10 * step + 5 * number, b"%s step %d\n" % (name.encode(), step)) for step in range(3000)], name)
    return anna


def test_any_lines_of_a_long_log_are_read_from_the_front_or_the_end(job: As) -> None:
    write(
        job,
        [
            (second * 1000, b"".join(b"line %d\n" % (second * 100 + each) for each in range(100)))
            for second in range(2000)
        ],
    )

    answer = read(job, FromLine=150_001, LineCount=2)
    assert (answer["TotalLines"], answer["FirstLine"], answer["Growing"]) == (200_000, 150_001, True)
    assert answer["CountedBytes"] == answer["TotalBytes"]
    assert texts(answer) == ["line 150000", "line 150001"]
    line = answer["Lines"][0]
    assert (line["Line"], line["Place"], line["Instance"], line["Size"]) == (150_001, 150_001, "algo-1", 11)
    assert line["Time"] == datetime.fromtimestamp(1500, UTC)

    assert texts(read(job, FromLine=-2)) == ["line 199998", "line 199999"]
    assert texts(read(job, LineCount=0)) == []
    assert texts(read(job, FromTime=datetime.fromtimestamp(1999, UTC), LineCount=1)) == ["line 199900"]
    assert texts(read(job, Instance="algo-1", FromByte=line["Byte"] + 3, LineCount=1)) == ["line 150000"]
    assert texts(read(job, FromLine=999_999)) == []


def test_a_log_that_grows_is_read_further_each_time(job: As) -> None:
    assert (read(job)["TotalLines"], read(job)["Lines"]) == (0, [])
    write(job, [(1, b"one\ntw")])
    first = read(job)
    assert [(line["Text"], line["Open"]) for line in first["Lines"]] == [("one", False), ("tw", True)]
    write(job, [(2, b"o\nthree\n")])
    assert texts(read(job, FromLine=first["TotalLines"])) == ["two", "three"]


def test_a_job_that_has_not_started_has_no_lines_yet(anna: As) -> None:
    create(anna)
    answer = read(anna)
    assert (answer["Attempt"], answer["Instances"], answer["Lines"], answer["Growing"]) == (0, [], [], True)
    assert search(anna, {"Text": "x"})["NextToken"] is None


def test_the_lines_of_several_instances_are_merged_by_time_at_any_place(group: As) -> None:
    assert read(group)["TotalLines"] == 6000
    window = read(group, FromLine=4001, LineCount=3)["Lines"]
    assert [(each["Instance"], each["Line"], each["Place"]) for each in window] == [
        ("algo-1", 2001, 4001),
        ("algo-2", 2001, 4002),
        ("algo-1", 2002, 4003),
    ]
    assert read(group, Instance="algo-2")["TotalLines"] == 3000
    with pytest.raises(Fault, match="algo-3"):
        read(group, Instance="algo-3")


@pytest.mark.parametrize("is_backward", [False, True])
@pytest.mark.parametrize("instance", ["", "algo-2"])
def test_every_match_is_found_once_in_either_direction(group: As, is_backward: bool, instance: str) -> None:
    chosen = {"Instance": instance} if instance else {}
    everything = read(group, LineCount=5000, **chosen)["Lines"] + read(group, FromLine=5001, **chosen)["Lines"]
    expected = [(each["Instance"], each["Line"], each["Place"]) for each in everything if each["Text"].endswith("7")]
    found = search_all(group, {"Regex": "7$"}, Backward=is_backward, MaxMatches=37, **chosen)
    assert found == (expected[::-1] if is_backward else expected)


def test_a_search_continues_from_a_line(group: As) -> None:
    after = search(group, {"Text": "step 999"}, FromLine=2000, MaxMatches=1)["Matches"][0]
    assert (after["Text"], after["Place"]) == ("algo-2 step 999", 2000)
    before = search(group, {"Text": "STEP 1"}, FromLine=2000, MaxMatches=1, Backward=True)["Matches"][0]
    assert before["Text"] == "algo-2 step 199"
    assert search(group, {"Text": "STEP", "MatchCase": True})["Matches"] == []
    assert search(group, {"Text": "step 2999"}, CountOnly=True)["MatchCount"] == 2


def test_one_call_searches_a_bounded_part(job: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.server.services.trainyard.logs.MAX_SEARCHED_BYTES", 500_000)
    write(job, [(0, b"nothing to see here\n" * 50_000), (1, b"needle\n"), (2, b"nothing\n" * 100_000)])
    pages = list[int]()
    token = dict[str, str]()
    while True:
        page = search(job, {"Text": "needle"}, **token)
        pages.append(page["MatchCount"])
        assert page["SearchedBytes"] < 1_000_000
        if not page["NextToken"]:
            break
        token = {"NextToken": page["NextToken"]}
    assert sum(pages) == 1
    assert len(pages) > 2


def test_a_line_of_a_hundred_megabytes_is_searched_and_found_once(job: As) -> None:
    write(job, [(0, b"before\n"), *[(1, b"x" * (1 << 20))] * 100, (2, b"needle and needle\nafter needle\n")])
    assert [line for _, line, _ in search_all(job, {"Text": "needle"})] == [2, 3]
    assert [line for _, line, _ in search_all(job, {"Text": "needle"}, Backward=True)] == [3, 2]
    assert [line for _, line, _ in search_all(job, {"Regex": "^after"}, MaxMatches=1)] == [3]
    line = read(job, FromLine=2, LineCount=1)["Lines"][0]
    assert (line["Size"], len(line["Text"]), line["End"][-6:]) == ((100 << 20) + 17, 8192, "needle")


def test_matches_are_shown_in_the_text_without_colours(job: As) -> None:
    write(job, [(0, b"\x1b[31mer\x1b[0mror one ERROR\n")])
    line = search(job, {"Text": "error"})["Matches"][0]
    assert line["Spans"] == [0, 5, 10, 15]
    assert read(job, Highlight={"Regex": "O.E"})["Lines"][0]["Spans"] == [6, 9]


ERRORS = [
    "Traceback (most recent call last):",
    "RuntimeError: CUDA error: device-side assert triggered",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    'Exception in thread "main" java.lang.NullPointerException: oh',
    "2026-07-01 12:00:00 ERROR trainer: disk",
    "[rank1]: ValueError: no",
    "error[E0382]: borrow of moved value",
    "train.c:3:5: error: expected expression",
    "thread 'main' panicked at src/main.rs:2:5:",
    "panic: runtime error: index out of range",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "bash: line 1: 7 Segmentation fault (core dumped) ./train",
    "NCCL error in: ProcessGroupNCCL.cpp:1",
    "fatal: not a git repository",
    "Killed",
    "the program exited with code 137",
    "OSError: [Errno 28] No space left on device",
    "\x1b[31mERROR\x1b[0m something",
]
HARMLESS = [
    "error=0.31 val_error: 0.12",
    "mean squared error 0.2",
    "0 errors, 3 warnings",
    "epoch 3 loss 0.1 Error rate 0.2",
    "exit code 0",
    "CUDA available: True",
    "registered ErrorHandler",
    "panicking is not an option",
]


@pytest.mark.parametrize("text", ERRORS)
def test_the_first_error_is_found_among_harmless_lines(job: As, text: str) -> None:
    write(job, [(0, "\n".join([*HARMLESS * 20, text, *HARMLESS, ""]).encode())])
    found = search(job, {"Errors": True}, MaxMatches=1)["Matches"]
    assert [line["Text"] for line in found] == [text]


def test_the_lines_of_one_rank_are_read_and_searched_alone(job: As) -> None:
    lines = [b"[1,mpirank:%d,algo-1]<stdout>:step %d\n" % (step % 12, step) for step in range(1200)]
    write(job, [(0, b"starting\n"), *[(step, line) for step, line in enumerate(lines)]])
    assert read(job, LineCount=0)["Ranks"] == list(range(12))
    window = read(job, Rank=1, FromLine=50, LineCount=2)
    assert window["TotalLines"] == 100
    assert [(each["Place"], each["Line"]) for each in window["Lines"]] == [(50, 1 + 49 * 12 + 2), (51, 1 + 50 * 12 + 2)]
    assert [place for _, _, place in search_all(job, {"Regex": "step 1..$"}, Rank=11)] == list(range(9, 17))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"Regex": "(open"}, "regular expression"),
        ({}, "one of"),
        ({"Text": "a", "Regex": "b"}, "one of"),
        ({"Text": "a\nb"}, "line ends"),
    ],
)
def test_an_invalid_pattern_is_refused(job: As, pattern: dict[str, Any], message: str) -> None:
    write(job, [(0, b"a\n")])
    with pytest.raises(Fault, match=message):
        search(job, pattern)


@pytest.mark.parametrize("token", ["1.2,3.4", "x", "-,-", "99999999999999999999.1", "."])
def test_a_foreign_token_is_refused(job: As, token: str) -> None:
    with pytest.raises(Fault):
        search(job, {"Text": "a"}, NextToken=token)


def test_a_token_beyond_the_log_finds_nothing(job: As) -> None:
    write(job, [(0, b"a\n" * 10)])
    assert search_all(job, {"Text": "a"}, NextToken="999.999") == []


def test_a_slow_expression_cannot_hold_the_yard(job: As) -> None:
    write(job, [(0, (b"a" * 40 + b"\n") * 100)])
    with pytest.raises(Fault, match="too slow"):
        search(job, {"Regex": r"^(?:a|aa)+(?!.)$(?<!a)"})


def test_earlier_attempts_keep_their_logs(job: As) -> None:
    second = Attempt(2, seconds(10), "KEY", (InstanceState("algo-1"),))
    remember(job, replace(load(job), attempts=(*load(job).attempts, second)))
    write(job, [(0, b"first\n")], attempt=1)
    write(job, [(0, b"second\n")], attempt=2)
    assert (texts(read(job)), texts(read(job, Attempt=1))) == (["second"], ["first"])
    assert (read(job)["Growing"], read(job, Attempt=1)["Growing"]) == (True, False)
    with pytest.raises(Fault, match="attempt"):
        read(job, Attempt=3)


def test_a_log_is_downloaded_byte_for_byte(job: As) -> None:
    data = bytes(range(256)) * 5000
    write(job, [(0, data)])

    async def download(**asked: Any) -> bytes:
        call = Call(job.yard, job.caller, "eu-west-3", "REQUEST", NOON, HttpRequest("POST", "/", "", Headers()))
        answer = await download_log(call, {"TrainingJobName": "mnist", "Instance": "algo-1", **asked})
        return b"".join([piece async for piece in answer["Log"]])

    assert asyncio.run(download()) == data
    assert asyncio.run(download(FromByte=1000, ByteCount=300_000)) == data[1000:301_000]


def test_the_logs_of_others_cannot_be_read(accounts: Accounts, job: As) -> None:
    write(job, [(0, b"secret\n")])
    for operation, asked in (("ReadLog", {}), ("SearchLog", {"Pattern": {"Text": "s"}})):
        with pytest.raises(Fault, match="no"):
            accounts.ben("trainyard", operation, TrainingJobName="mnist", **asked)
    assert texts(read(accounts.admin)) == ["secret"]
