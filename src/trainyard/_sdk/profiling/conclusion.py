"""What the yard concludes from the profile of a job."""

from collections.abc import Mapping
from typing import Any

from trainyard._sdk.connection import Api
from trainyard.foundation.errors import Corrupt
from trainyard.foundation.plain import from_plain
from trainyard.insight.profiling.verdict.contract import ProfileAdvice, ProfileCosts, ProfileVerdict

__all__ = [
    "JobConclusion",
    "ProfileAdvice",
    "ProfileCosts",
    "ProfileVerdict",
    "describe_profile",
    "verdict_of",
]

# The response of DescribeProfile.
JobConclusion = Mapping[str, Any]


def describe_profile(api: Api, name: str) -> JobConclusion:
    """Return what the yard concludes from the profile of a job, as of now."""
    return api.call("trainyard", "DescribeProfile", TrainingJobName=name)


def verdict_of(conclusion: JobConclusion) -> ProfileVerdict:
    """Return the verdict of a conclusion; of a yard of another version, at least its summary."""
    try:
        return from_plain(ProfileVerdict, conclusion["Verdict"])
    except Corrupt:
        return ProfileVerdict(str(conclusion["Verdict"].get("summary", "")))
