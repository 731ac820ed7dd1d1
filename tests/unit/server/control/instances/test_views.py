from datetime import timedelta
from typing import Any

from tests.unit.server.control.bench import Bench
from trainyard.formats.logs import LogWriter
from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.foundation.clock import to_micros
from trainyard.link.contract import FrameKind
from trainyard.server.jobs.training import LOG_GROUP

TWO = {"InstanceType": "local", "InstanceCount": 2, "VolumeSizeInGB": 1}
DIMENSIONS = [{"Name": "TrainingJobName", "Value": "mnist"}]


def say(bench: Bench, value: float, *, instance: str = "algo-1", attempt: int = 1) -> None:
    """A value of the metric loss, as an agent keeps and reports it."""
    agent, now = bench.agent(instance=instance, attempt=attempt), to_micros(bench.watch())
    PointsFile(series_file(agent.folder.metrics, "loss")).append([Point.of(value, now)])
    agent.report(FrameKind.METRIC, name="loss", value=value, at_us=now, count=1)


def statistics(bench: Bench) -> list[dict[str, Any]]:
    now = bench.watch()
    answer = bench.anna.at(now)(
        "cloudwatch",
        "GetMetricStatistics",
        Namespace=LOG_GROUP,
        MetricName="loss",
        Dimensions=DIMENSIONS,
        StartTime=now - timedelta(minutes=10),
        EndTime=now + timedelta(minutes=10),
        Period=3600,
        Statistics=["SampleCount", "Average"],
    )
    points: list[dict[str, Any]] = answer["Datapoints"]
    return points


def test_the_points_of_all_instances_are_one_metric(bench: Bench) -> None:
    claim = bench.start(ResourceConfig=TWO)
    say(bench, 1.0)
    say(bench, 3.0, instance="algo-2")
    bench.turn(claim)
    (point,) = statistics(bench)
    assert (point["SampleCount"], point["Average"], point["Unit"]) == (2.0, 2.0, "None")
    listed = bench.anna("cloudwatch", "ListMetrics", Namespace=LOG_GROUP)["Metrics"]
    assert listed == [{"Namespace": LOG_GROUP, "MetricName": "loss", "Dimensions": DIMENSIONS}]


def test_a_metric_that_was_never_seen_is_not_listed(bench: Bench) -> None:
    bench.turn(bench.start())
    assert bench.anna("cloudwatch", "ListMetrics", Namespace=LOG_GROUP)["Metrics"] == []


def test_a_metric_goes_with_its_job(bench: Bench) -> None:
    claim = bench.start()
    say(bench, 1.0)
    bench.agent().end()
    bench.turn(claim)
    assert statistics(bench)
    bench.anna("sagemaker", "DeleteTrainingJob", TrainingJobName="mnist")
    assert statistics(bench) == []
    assert bench.anna("cloudwatch", "ListMetrics", Namespace=LOG_GROUP)["Metrics"] == []


def test_the_output_of_an_instance_is_read_as_a_stream(bench: Bench) -> None:
    bench.start()
    with LogWriter(bench.agent().folder.logs) as writer:
        writer.append(b"hello\n", ms=int(bench.watch().timestamp() * 1000))
    (stream,) = bench.anna("logs", "DescribeLogStreams", logGroupName=LOG_GROUP)["logStreams"]
    events = bench.anna.at(bench.watch())(
        "logs", "GetLogEvents", logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"], startFromHead=True
    )["events"]
    assert [event["message"] for event in events] == ["hello"]


def test_the_log_group_of_a_user_may_be_there_already(bench: Bench) -> None:
    bench.anna("logs", "CreateLogGroup", logGroupName=LOG_GROUP)
    bench.start()
    assert len(bench.anna("logs", "DescribeLogStreams", logGroupName=LOG_GROUP)["logStreams"]) == 1


def sample(bench: Bench, percent: float, *, instance: str = "algo-1", attempt: int = 1) -> None:
    """A minute of the utilisation of a host, as an agent keeps and reports it."""
    agent, now = bench.agent(instance=instance, attempt=attempt), to_micros(bench.watch())
    PointsFile(series_file(agent.folder.hardware, "CPUUtilization")).append(
        [Point(now, 60 * percent, percent - 5, percent + 5, 60)]
    )
    agent.report(FrameKind.HARDWARE, metrics=["CPUUtilization", "../../spool"])


def utilisation(bench: Bench, host: str) -> list[float]:
    now = bench.watch()
    stat = {
        "Metric": {"Namespace": LOG_GROUP, "MetricName": "CPUUtilization", "Dimensions": host_dimensions(host)},
        "Period": 60,
        "Stat": "Average",
        "Unit": "Percent",
    }
    (answer,) = bench.anna.at(now)(
        "cloudwatch",
        "GetMetricData",
        MetricDataQueries=[{"Id": "cpu", "MetricStat": stat}],
        StartTime=now - timedelta(minutes=10),
        EndTime=now + timedelta(minutes=10),
    )["MetricDataResults"]
    values: list[float] = answer["Values"]
    return values


def host_dimensions(host: str) -> list[dict[str, str]]:
    return [{"Name": "Host", "Value": f"mnist/{host}"}]


def test_the_utilisation_of_each_host_is_a_metric_of_its_own(bench: Bench) -> None:
    claim = bench.start(ResourceConfig=TWO)
    sample(bench, 90.0)
    sample(bench, 40.0, instance="algo-2")
    bench.turn(claim)
    assert (utilisation(bench, "algo-1"), utilisation(bench, "algo-2")) == ([90.0], [40.0])
    listed = bench.anna("cloudwatch", "ListMetrics", Namespace=LOG_GROUP, Dimensions=[{"Name": "Host"}])["Metrics"]
    assert sorted(listed, key=lambda metric: str(metric["Dimensions"])) == [
        {"Namespace": LOG_GROUP, "MetricName": "CPUUtilization", "Dimensions": host_dimensions(host)}
        for host in ("algo-1", "algo-2")
    ]


def test_the_utilisation_of_a_host_spans_all_attempts(bench: Bench) -> None:
    claim = bench.start(RetryStrategy={"MaximumRetryAttempts": 1})
    sample(bench, 90.0)
    bench.turn(claim)
    bench.agent().die()
    bench.turn(claim)
    bench.watch.forward(3)
    bench.turn(claim, times=2)
    sample(bench, 50.0, attempt=2)
    bench.turn(claim)
    assert utilisation(bench, "algo-1") == [70.0]
