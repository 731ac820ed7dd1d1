"""IAM: users as the yard has them; roles and policies as facts that are remembered and enforced nowhere.

Names are matched in the case they were made with, where AWS also refuses names that differ in case only.
"""

from trainyard.server.services.contract import Operations
from trainyard.server.services.iam import account, instance_profiles, policies, role_policies, roles, users
from trainyard.server.services.iam.faults import FAULTS

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **roles.OPERATIONS,
    **role_policies.OPERATIONS,
    **policies.OPERATIONS,
    **instance_profiles.OPERATIONS,
    **users.OPERATIONS,
    **account.OPERATIONS,
}
