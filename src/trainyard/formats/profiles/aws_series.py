"""The words of AWS's files for the series of hardware samples. Standard library only: agents use them too."""

from typing import NamedTuple

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries


class AwsSeries(NamedTuple):
    """A series in AWS's words: kind of hardware, device or metric, and dimension."""

    type: str
    name: str
    dimension: str


_M = HardwareMetric
# The device is the name of those without one.
_WORDS = {
    _M.CPU_PERCENT: AwsSeries("cpu", "", "CPUUtilization"),
    _M.IO_WAIT_PERCENT: AwsSeries("cpu", "", "I/OWaitPercentage"),
    _M.MEMORY_PERCENT: AwsSeries("memory", "MemoryUsedPercent", ""),
    _M.DISK_READ_BYTES_S: AwsSeries("i/o", "ReadThroughputInBytesPerSecond", ""),
    _M.DISK_WRITE_BYTES_S: AwsSeries("i/o", "WriteThroughputInBytesPerSecond", ""),
    _M.NETWORK_RECEIVED_BYTES_S: AwsSeries("network", "ReceiveBytesPerSecond", "Algorithm"),
    _M.NETWORK_SENT_BYTES_S: AwsSeries("network", "TransmitBytesPerSecond", "Algorithm"),
    _M.GPU_PERCENT: AwsSeries("gpu", "", "GPUUtilization"),
    _M.GPU_MEMORY_PERCENT: AwsSeries("gpu", "", "GPUMemoryUtilization"),
}


def aws_series(series: HardwareSeries) -> AwsSeries | None:
    """Return the words for a series; None if AWS's files have no such one."""
    if series.metric not in _WORDS or series.device == "total":
        return None
    words = _WORDS[series.metric]
    return words._replace(name=words.name or series.device.replace("core", "cpu"))
