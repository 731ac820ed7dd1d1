"""A training goes wrong, and its rules send mails, call webhooks and stop it."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.system.fuzz.world import User
from tests.system.gateways import Hook, Mailbox, http_server, mail_server
from tests.system.trainees import Trainee
from tests.unit.server.services.sagemaker.rules import BUILT_IN, actions
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, start_yard

PATIENCE = timedelta(seconds=90)

BREAKS = """
import time
import torch
from torch import nn

model, measure = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    inputs = torch.randn(8, 4) * (float("nan") if step == 5 else 1.0)
    optimizer.zero_grad()
    measure(model(inputs), torch.zeros(8, 1)).backward()
    optimizer.step()
    time.sleep(0.005)
"""


def environment(mailbox: Mailbox, hook: Hook) -> dict[str, str]:
    return {
        **os.environ,
        "TRAINYARD_SERVER_SMTP_URL": f"smtp://127.0.0.1:{mailbox.port}",
        "TRAINYARD_SERVER_SMTP_FROM": "yard@example.com",
        "TRAINYARD_SERVER_WEBHOOK_HOSTS": f"127.0.0.1:{hook.port}",
        "TRAINYARD_SERVER_WEBHOOK_SECRET": "s3cret",
    }


def rule(name: str, *given: dict[str, str], **parameters: str) -> dict[str, Any]:
    told = {"rule_to_invoke": "ExplodingTensor", "collection_names": "losses", "action_json": actions(*given)}
    return {"RuleConfigurationName": name, "RuleEvaluatorImage": BUILT_IN, "RuleParameters": {**told, **parameters}}


def trainee_of(yard: RunningYard) -> Trainee:
    known = yard.credentials
    return Trainee(
        User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)
    )


@pytest.mark.parametrize(
    "is_killed",
    [
        pytest.param(False, id="the yard goes on"),
        pytest.param(True, id="the yard is killed", marks=pytest.mark.slow),
    ],
)
def test_a_rule_mails_posts_and_stops_once_however_often_gateways_fail(tmp_path: Path, is_killed: bool) -> None:
    with mail_server(refusals=1) as mailbox, http_server(503, 503, 200) as hook:
        settings = environment(mailbox, hook)
        yard = start_yard(tmp_path / "yard", environment=settings)
        try:
            url = f"http://127.0.0.1:{hook.port}/found"
            rules = [
                rule("Loud", {"name": "email", "endpoint": "anna@example.com"}, {"name": "webhook", "endpoint": url}),
                rule("Dry", {"name": "slack", "endpoint": url}, dry_run="true"),
                rule("Stops", {"name": "stoptraining", "training_job_prefix": "breaks"}),
            ]
            hooked = {"S3OutputPath": "s3://data/debug"}
            trainee_of(yard).prepare().start("breaks", BREAKS, DebugHookConfig=hooked, DebugRuleConfigurations=rules)
            eventually(lambda: len(hook.posted) >= 1, within=PATIENCE)
            if is_killed:
                yard.kill()
                yard = start_yard(tmp_path / "yard", environment=settings)
            trainee = trainee_of(yard)
            eventually(lambda: trainee.describe("breaks")["TrainingJobStatus"] == "Stopped", within=PATIENCE)
            eventually(lambda: len(hook.posted) == 3 and len(mailbox.mails) == 1, within=PATIENCE)
            told = trainee.describe("breaks")
        finally:
            yard.stop()
    assert {each["RuleEvaluationStatus"] for each in told["DebugRuleEvaluationStatuses"]} == {"IssuesFound"}
    assert {each.path for each in hook.posted} == {"/found"}
    assert len({each.headers["Idempotency-Key"] for each in hook.posted}) == 1
    assert hook.posted[-1].values["rule"] == "Loud"
    assert all("X-Trainyard-Signature" in each.headers for each in hook.posted)
    assert "Rule Loud found an issue in training job breaks" in mailbox.mails[0].text
    stopping = next(each for each in told["SecondaryStatusTransitions"] if each["Status"] == "Stopping")
    assert stopping["StatusMessage"].startswith("Rule Stops stops the training job")
