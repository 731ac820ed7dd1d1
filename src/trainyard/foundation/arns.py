"""Builds Amazon resource names and ids."""

import base64
import hashlib

PARTITION = "aws"


def arn(service: str, region: str, account: str, resource: str) -> str:
    return f"arn:{PARTITION}:{service}:{region}:{account}:{resource}"


def role_arn(account: str, name: str, path: str = "/") -> str:
    return arn("iam", "", account, f"role{path}{name}")


def user_arn(account: str, name: str, path: str = "/") -> str:
    return arn("iam", "", account, f"user{path}{name}")


def policy_arn(account: str, name: str, path: str = "/") -> str:
    return arn("iam", "", account, f"policy{path}{name}")


def instance_profile_arn(account: str, name: str, path: str = "/") -> str:
    return arn("iam", "", account, f"instance-profile{path}{name}")


def assumed_role_arn(account: str, role: str, session: str) -> str:
    return arn("sts", "", account, f"assumed-role/{role}/{session}")


def unique_id(prefix: str, seed: str) -> str:
    """Return an id in IAM's form (AROA…, AIDA…, ANPA…), always the same for the same seed."""
    return prefix + base64.b32encode(hashlib.sha256(seed.encode()).digest()).decode()[:17]
