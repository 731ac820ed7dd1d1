"""What an account is as a whole: its counts and limits, and what no account of a yard has."""

from trainyard.server import roles
from trainyard.server.identity import KEYS_PER_USER
from trainyard.server.records.contract import Query
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.iam import managed, profiles
from trainyard.server.services.iam.documents import INLINE_QUOTA, POLICY_QUOTA, TRUST_QUOTA
from trainyard.server.services.iam.paging import all_of
from trainyard.server.services.iam.policies import VERSIONS_PER_POLICY
from trainyard.server.services.iam.role_policies import ATTACHED_PER_ROLE
from trainyard.server.services.iam.users import named_user, visible_users

_NONE_HERE = (
    "AccountAccessKeysPresent",
    "AccountMFAEnabled",
    "AccountSigningCertificatesPresent",
    "Groups",
    "MFADevices",
    "MFADevicesInUse",
    "Providers",
    "ServerCertificates",
)


def get_account_summary(call: Call, _request: Shape) -> Shape:
    """How many things there are, and the limits that the yard has; limits of AWS that it has not are left out."""
    policies = list(all_of(call.yard.records, Query(managed.KIND, account=call.caller.scope)))
    counts = {
        "Users": len(visible_users(call)),
        "Roles": _count(call, roles.KIND),
        "InstanceProfiles": _count(call, profiles.KIND),
        "Policies": len(policies),
        "PolicyVersionsInUse": sum(len(managed.policy_of(policy).versions) for policy in policies),
    }
    quotas = {
        "AccessKeysPerUserQuota": KEYS_PER_USER,
        "AssumeRolePolicySizeQuota": TRUST_QUOTA[1],
        "AttachedPoliciesPerRoleQuota": ATTACHED_PER_ROLE,
        "PolicySizeQuota": POLICY_QUOTA[1],
        "RolePolicySizeQuota": INLINE_QUOTA[1],
        "VersionsPerPolicyQuota": VERSIONS_PER_POLICY,
    }
    return {"SummaryMap": counts | quotas | dict.fromkeys(_NONE_HERE, 0)}


def list_account_aliases(_call: Call, _request: Shape) -> Shape:
    return {"AccountAliases": [], "IsTruncated": False}


def list_groups(_call: Call, _request: Shape) -> Shape:
    """None: a yard has no groups."""
    return {"Groups": [], "IsTruncated": False}


def list_groups_for_user(call: Call, request: Shape) -> Shape:
    """None: a yard has no groups."""
    named_user(call, request, "ListGroupsForUser")
    return {"Groups": [], "IsTruncated": False}


def list_user_policies(call: Call, request: Shape) -> Shape:
    """None: policies here belong to roles."""
    named_user(call, request, "ListUserPolicies")
    return {"PolicyNames": [], "IsTruncated": False}


def list_attached_user_policies(call: Call, request: Shape) -> Shape:
    """None: policies here belong to roles."""
    named_user(call, request, "ListAttachedUserPolicies")
    return {"AttachedPolicies": [], "IsTruncated": False}


OPERATIONS: Operations = {
    "GetAccountSummary": get_account_summary,
    "ListAccountAliases": list_account_aliases,
    "ListGroups": list_groups,
    "ListGroupsForUser": list_groups_for_user,
    "ListUserPolicies": list_user_policies,
    "ListAttachedUserPolicies": list_attached_user_policies,
}


def _count(call: Call, kind: str) -> int:
    return sum(1 for _ in all_of(call.yard.records, Query(kind, account=call.caller.scope)))
