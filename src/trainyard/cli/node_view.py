"""The lines of a yard's engines and their nodes, as lines of text."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.cli.console import size
from trainyard.showing import inert

Line = Mapping[str, Any]
Node = Mapping[str, Any]


def node_lines(yard: Mapping[str, Any]) -> Iterator[str]:
    """Each line with its nodes; nothing where the yard's own machine is all there is, of which the rest tells."""
    lines = yard["Lines"]
    if all(node["Name"] == "" for line in lines for node in line["Nodes"]) and len(lines) == 1:
        return
    for line in lines:
        yield ""
        yield _title(line)
        if line.get("Obstacle"):
            yield f"  {inert(line['Obstacle'])}"
        rows = [(inert(node["Name"]) or "this machine", *_uses(node)) for node in line["Nodes"]]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _title(line: Line) -> str:
    count, queued = len(line["Nodes"]), line["QueuedJobs"]
    nodes, jobs = "node" if count == 1 else "nodes", "job waits" if queued == 1 else "jobs wait"
    return f"{' and '.join(line['Engines'])}: {count} {nodes}, {queued} {jobs}"


def _uses(node: Node) -> tuple[str, ...]:
    """What of a node is in use; of what instances share, what there is."""
    cpus, memory = node.get("CpusInUse"), node.get("MemoryBytesInUse")
    return (
        f"{node['SlotsInUse']} of {node['Slots']} slots",
        f"{node['Cpus']:g} cores" if cpus is None else f"{cpus:g} of {node['Cpus']:g} cores",
        size(node["MemoryBytes"]) if memory is None else f"{size(memory)} of {size(node['MemoryBytes'])}",
        f"{node['GpusInUse']} of {node['Gpus']} GPUs" if node["Gpus"] else "",
        "spot" if node["Spot"] else "",
    )
