"""Write and read log events, a metric and a role with boto3. First run: eval "$(trainyard env)"."""

import json
import time
from datetime import UTC, datetime, timedelta

import boto3

logs = boto3.client("logs")
stream = {"logGroupName": "/first/steps", "logStreamName": "run-1"}
logs.create_log_group(logGroupName="/first/steps")
logs.create_log_stream(**stream)
now = int(time.time() * 1000)
events = [{"timestamp": now + step, "message": f"step {step}: loss {1 / (step + 1):.3f}"} for step in range(3)]
logs.put_log_events(**stream, logEvents=events)
for event in logs.get_log_events(**stream, startFromHead=True)["events"]:
    print(event["message"])

cloudwatch = boto3.client("cloudwatch")
data = [{"MetricName": "loss", "Value": 1 / (step + 1)} for step in range(3)]
cloudwatch.put_metric_data(Namespace="FirstSteps", MetricData=data)
hour = {"StartTime": datetime.now(UTC) - timedelta(hours=1), "EndTime": datetime.now(UTC) + timedelta(hours=1)}
found = cloudwatch.get_metric_statistics(
    Namespace="FirstSteps", MetricName="loss", Period=3600, Statistics=["Minimum", "SampleCount"], **hour
)
print(f"lowest loss: {min(point['Minimum'] for point in found['Datapoints']):.3f}")

iam = boto3.client("iam")
trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
role = iam.create_role(RoleName="trainer", AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))["Role"]
print(role["Arn"])
