from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.server.control.profiling.profiles import Profiled, rule
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.encryption.headers import encryption_of
from trainyard.server.control.profiling.report_storage import ReportStorage, report_page, report_prefix


def test_a_report_is_where_aws_has_it_or_where_its_rule_says(profiled: Profiled) -> None:
    own = rule("batch", "BatchSize") | {"S3OutputPath": "s3://data/rules/"}
    profiled.start(rule("ProfilerReport-1", "ProfilerReport"), own)
    job = profiled.bench.job()
    assert job.plan.profiler is not None
    report, batch = job.plan.profiler.rules
    assert str(report_prefix(job, report)) == "s3://data/output/mnist/rule-output/ProfilerReport-1/profiler-output/"
    assert str(report_prefix(job, batch)) == "s3://data/rules/mnist/rule-output/batch/profiler-output/"
    assert report_page(job) == f"{report_prefix(job, report)}profiler-report.html"
    without = replace(job, plan=replace(job.plan, profiler=replace(job.plan.profiler, rules=(batch,))))
    assert report_page(without) == ""


def test_files_have_the_types_that_browsers_expect_and_the_key_of_the_job(profiled: Profiled, tmp_path: Path) -> None:
    anna = profiled.bench.anna
    key = anna("kms", "CreateKey")["KeyMetadata"]["Arn"]
    output = {"S3OutputPath": "s3://data/output", "KmsKeyId": key}
    profiled.start(rule("report", "ProfilerReport"), OutputDataConfig=output)
    job = profiled.bench.job()
    assert job.plan.profiler is not None
    (tmp_path / "profiler-report.html").write_text("page")
    (tmp_path / "profiler-reports").mkdir()
    (tmp_path / "profiler-reports" / "BatchSize.json").write_text("{}")
    files = ["profiler-report.html", "profiler-reports/BatchSize.json"]
    ReportStorage(anna.yard.objects).store(job, job.plan.profiler.rules[0], tmp_path, files, now=profiled.bench.watch())
    prefix = "output/mnist/rule-output/report/profiler-output"
    page = anna.yard.objects.info(Location(BucketRef(anna.account, "data"), f"{prefix}/profiler-report.html"))
    assert page.attributes.headers["content-type"] == "text/html; charset=utf-8"
    encryption = encryption_of(page.attributes)
    assert encryption is not None
    assert encryption.key == key


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b/c", "", ".hidden", "a/../b"])
def test_only_files_of_a_report_are_stored(name: str, profiled: Profiled, tmp_path: Path) -> None:
    profiled.start(rule("report", "ProfilerReport"))
    job = profiled.bench.job()
    assert job.plan.profiler is not None
    with pytest.raises(InvalidRequest, match="not a file of a report"):
        ReportStorage(profiled.bench.anna.yard.objects).store(
            job, job.plan.profiler.rules[0], tmp_path, [name], now=profiled.bench.watch()
        )
