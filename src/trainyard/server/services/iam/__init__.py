"""IAM: the users of the yard, and roles and policies, which are stored but not enforced.

Names are case sensitive; AWS refuses a name that differs from another only in case.
"""

from trainyard.server.services.contract import Operations
from trainyard.server.services.iam import instance_profiles, policies, role_policies, roles, simulation, users
from trainyard.server.services.iam.faults import FAULTS

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **roles.OPERATIONS,
    **role_policies.OPERATIONS,
    **policies.OPERATIONS,
    **instance_profiles.OPERATIONS,
    **users.OPERATIONS,
    **simulation.OPERATIONS,
}
