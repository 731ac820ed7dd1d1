"""Streams the statuses, notes, log lines and metrics of training jobs to the clients that follow them."""

from trainyard.server.streaming.batches import FollowCursor
from trainyard.server.streaming.followers import Followers
from trainyard.server.streaming.metric_points import MetricCursor

__all__ = ["FollowCursor", "Followers", "MetricCursor"]
