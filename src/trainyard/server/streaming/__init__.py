"""Streams the statuses, notes and log lines of training jobs to the clients that follow them."""

from trainyard.server.streaming.batches import FollowCursor
from trainyard.server.streaming.followers import Followers

__all__ = ["FollowCursor", "Followers"]
