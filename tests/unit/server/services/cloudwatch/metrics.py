"""The metrics of one namespace, for one caller."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.unit.server.services.accounts import NOON, As
from trainyard.server.services.contract import Shape

JOB = [{"Name": "TrainingJobName", "Value": "mnist"}]


@dataclass(frozen=True)
class Metrics:
    caller: As
    namespace: str = "Yard"

    def put(self, name: str = "loss", /, **datum: Any) -> Shape:
        return self.put_all([{"MetricName": name, **datum}])

    def put_all(self, data: list[dict[str, Any]]) -> Shape:
        return self.caller("cloudwatch", "PutMetricData", Namespace=self.namespace, MetricData=data)

    def statistics(self, *names: str, name: str = "loss", **request: Any) -> list[Shape]:
        asked = {"StartTime": NOON, "EndTime": NOON + timedelta(hours=1), "Period": 60} | request
        if names:
            asked["Statistics"] = list(names)
        answer = self.caller("cloudwatch", "GetMetricStatistics", Namespace=self.namespace, MetricName=name, **asked)
        assert answer["Label"] == name
        points: list[Shape] = answer["Datapoints"]
        return points

    def query(self, id_: str = "m", *, name: str = "loss", stat: str = "Sum", period: int = 60, **more: Any) -> Shape:
        metric = {"Namespace": self.namespace, "MetricName": name}
        return {"Id": id_, "MetricStat": {"Metric": metric, "Period": period, "Stat": stat}, **more}

    def data(self, *queries: Shape, **request: Any) -> Shape:
        asked = {"StartTime": NOON, "EndTime": NOON + timedelta(hours=1)} | request
        return self.caller("cloudwatch", "GetMetricData", MetricDataQueries=list(queries), **asked)

    def at(self, moment: datetime) -> "Metrics":
        return Metrics(self.caller.at(moment), self.namespace)


def minute(number: float) -> datetime:
    return NOON + timedelta(minutes=number)
