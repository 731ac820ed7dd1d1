"""Amazon resource names, as the yard mints them."""

PARTITION = "aws"


def arn(service: str, region: str, account: str, resource: str) -> str:
    return f"arn:{PARTITION}:{service}:{region}:{account}:{resource}"


def role_arn(account: str, name: str, path: str = "/") -> str:
    return arn("iam", "", account, f"role{path}{name}")


def user_arn(account: str, name: str) -> str:
    return arn("iam", "", account, f"user/{name}")


def policy_arn(account: str, name: str, path: str = "/") -> str:
    return arn("iam", "", account, f"policy{path}{name}")


def assumed_role_arn(account: str, role: str, session: str) -> str:
    return arn("sts", "", account, f"assumed-role/{role}/{session}")
