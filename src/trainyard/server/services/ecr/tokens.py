"""What clients log in to a registry with."""

import base64
import secrets
from datetime import timedelta

from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.ecr.repositories import registry_of

LIFETIME = timedelta(hours=12)


def get_authorization_token(call: Call, shape: Shape) -> Shape:
    """A token as AWS gives it, so that scripts go on; no registry takes it, because the yard has none to push to."""
    return {"authorizationData": [_token(call, account) for account in shape.get("registryIds", [call.account])]}


OPERATIONS: Operations = {"GetAuthorizationToken": get_authorization_token}


def _token(call: Call, account: str) -> Shape:
    return {
        "authorizationToken": base64.b64encode(f"AWS:{secrets.token_urlsafe(48)}".encode()).decode(),
        "expiresAt": call.now + LIFETIME,
        "proxyEndpoint": f"https://{registry_of(account, call.region)}",
    }
