"""CreateSignInLink: a browser signs in to the dashboard without typing a key."""

from trainyard.foundation.errors import NotPermitted
from trainyard.server.identity import is_temporary
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.sign_in_links import LIFETIME, create_link, sign_in_path


def create_sign_in_link(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - the request has no members
    """Create a link for the caller. NotPermitted for temporary credentials, such as those of a job."""
    if is_temporary(call.caller.access_key_id):
        raise NotPermitted(
            "Temporary credentials, such as those of a job, create no links to sign in with. Call with the key pair of "
            "a user."
        )
    code = create_link(call.yard.records, call.account, now=call.now)
    return {"Path": sign_in_path(code), "ExpiresAt": call.now + LIFETIME}


OPERATIONS: Operations = {"CreateSignInLink": create_sign_in_link}
