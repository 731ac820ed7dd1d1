"""The network of a processing job."""

from collections.abc import Sequence
from typing import Any

__all__ = ["NetworkConfig"]


class NetworkConfig:
    """What the instances of a processing job can reach.

    Args:
        enable_network_isolation: Whether instances reach only each other: no network, no yard, no S3.
        security_group_ids: Security groups of the job. The request includes them only together with `subnets`.
        subnets: Subnets of the job. The request includes them only together with `security_group_ids`.
        encrypt_inter_container_traffic: Whether to encrypt the traffic between instances.
    """

    def __init__(
        self,
        enable_network_isolation: bool = False,
        security_group_ids: Sequence[str] | None = None,
        subnets: Sequence[str] | None = None,
        encrypt_inter_container_traffic: bool | None = None,
    ) -> None:
        self.enable_network_isolation = enable_network_isolation
        self.security_group_ids, self.subnets = security_group_ids, subnets
        self.encrypt_inter_container_traffic = encrypt_inter_container_traffic

    def shape(self) -> dict[str, Any]:
        """Return the NetworkConfig of a request."""
        shape: dict[str, Any] = {"EnableNetworkIsolation": self.enable_network_isolation}
        if self.encrypt_inter_container_traffic is not None:
            shape["EnableInterContainerTrafficEncryption"] = self.encrypt_inter_container_traffic
        if self.security_group_ids and self.subnets:
            groups, subnets = list(self.security_group_ids), list(self.subnets)
            shape["VpcConfig"] = {"SecurityGroupIds": groups, "Subnets": subnets}
        return shape
