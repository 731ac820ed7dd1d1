"""Times as CloudWatch Logs writes them."""

from datetime import datetime

from trainyard.foundation.clock import to_micros


def to_millis(moment: datetime) -> int:
    return to_micros(moment) // 1000
