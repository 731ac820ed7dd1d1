"""QueryLineage: follow associations from an entity, breadth first."""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.lineage.nodes import JOB_TYPE_PREFIX, LineageNode, load_nodes, parse_node_arn
from trainyard.server.records.contract import Association, Records
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.lineage.node_access import load_visible_node

# AWS's limit, and the default.
MAX_DEPTH = 10
# Vertices of an answer to a request without MaxResults. The sagemaker SDK reads only one answer.
PAGE = 1000
# Entities and associations that one query may visit.
MAX_VISITED = 20_000

_ENDS_AT_ONCE = 500


def query_lineage(call: Call, shape: Shape) -> Shape:
    """Return what an entity came from or went into, with the associations on the way. Each entity is visited once."""
    starts = [load_visible_node(call, arn) for arn in shape.get("StartArns", ())]
    if not starts:
        raise InvalidRequest("QueryLineage needs StartArns: the ARN of the entity where it begins.")
    walk = _Walk(call.yard.records, starts, _require_depth(shape), shape.get("Direction", "Both"))
    wanted = _Filters(shape.get("Filters", {}))
    with_edges = shape.get("IncludeEdges", True)
    limit, first = shape.get("MaxResults") or PAGE, _offset(shape.get("NextToken", ""))
    matches: list[LineageNode] = []
    for node in walk.visit():
        # Without edges, the answer has what the query is for, and not what it begins with.
        if wanted.accept(node) and (with_edges or node.arn not in walk.start_arns):
            matches.append(node)
        if len(matches) > first + limit:
            break
    page = matches[first : first + limit]
    token = _token(first + limit) if len(matches) > first + limit else None
    vertices, edges = walk.paths_to(page) if with_edges else (page, [])
    answer: Shape = {"Vertices": [_vertex(node) for node in vertices], "Edges": [_edge(each) for each in edges]}
    return answer | ({"NextToken": token} if token else {})


OPERATIONS: Operations = {"QueryLineage": query_lineage}


class _Filters:
    """What Filters asks for. Of several properties, one has to match."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def accept(self, node: LineageNode) -> bool:
        shape = self._shape
        if shape.get("Types") and _vertex_type(node) not in shape["Types"]:
            return False
        if shape.get("LineageTypes") and node.lineage_type not in shape["LineageTypes"]:
            return False
        if "CreatedAfter" in shape and not node.created_at > shape["CreatedAfter"]:
            return False
        if "CreatedBefore" in shape and not node.created_at < shape["CreatedBefore"]:
            return False
        if "ModifiedAfter" in shape and not node.modified_at > shape["ModifiedAfter"]:
            return False
        if "ModifiedBefore" in shape and not node.modified_at < shape["ModifiedBefore"]:
            return False
        properties = shape.get("Properties")
        return not properties or any(node.properties.get(name) == value for name, value in properties.items())


@dataclass
class _Walk:
    """A walk over the lineage of one account, level by level. Cycles end it, as no entity is visited twice."""

    records: Records
    starts: Sequence[LineageNode]
    max_depth: int
    direction: str
    nodes: dict[str, LineageNode] = field(default_factory=dict)
    # By the end that was reached: the associations over which it was.
    reached_by: dict[str, list[Association]] = field(default_factory=dict)
    visited: int = 0

    @property
    def start_arns(self) -> set[str]:
        return {node.arn for node in self.starts}

    def visit(self) -> Iterator[LineageNode]:
        """Yield the entities within the depth, the nearest first."""
        account = parse_node_arn(self.starts[0].arn).account
        self.nodes = {node.arn: node for node in self.starts}
        yield from self.starts
        level = [node.arn for node in self.starts]
        for _ in range(self.max_depth):
            following = self._next_level(account, level)
            for arn in following:
                yield self.nodes[arn]
            if not following:
                return
            level = following

    def paths_to(self, found: Sequence[LineageNode]) -> tuple[list[LineageNode], list[Association]]:
        """Return the entities and associations on all walked paths from the start to what was found."""
        edges: dict[tuple[str, str], Association] = {}
        on_path, pending = {node.arn for node in found}, [node.arn for node in found]
        while pending:
            arn = pending.pop()
            for edge in self.reached_by.get(arn, ()):
                edges[edge.source, edge.destination] = edge
                other = edge.source if edge.destination == arn else edge.destination
                if other in on_path:
                    continue
                on_path.add(other)
                # A path begins at the start, even if a cycle leads back to it.
                if other not in self.start_arns:
                    pending.append(other)
        return [node for arn, node in self.nodes.items() if arn in on_path], list(edges.values())

    def _next_level(self, account: str, level: Sequence[str]) -> list[str]:
        """Follow all associations of a level; return the entities that were not visited before."""
        steps = list(self._steps(account, level))
        new = list(dict.fromkeys(far for far, _ in steps if far not in self.nodes))
        self._count(len(steps))
        # One that was deleted meanwhile is left out.
        found = load_nodes(self.records, new)
        self.nodes |= {arn: found[arn] for arn in new if arn in found}
        for far, edge in steps:
            if far in self.nodes:
                self.reached_by.setdefault(far, []).append(edge)
        return [arn for arn in new if arn in found]

    def _steps(self, account: str, level: Sequence[str]) -> Iterator[tuple[str, Association]]:
        """Yield the far end of each association of a level, with the association."""
        room = MAX_VISITED - self.visited + 1
        for first in range(0, len(level), _ENDS_AT_ONCE):
            some = level[first : first + _ENDS_AT_ONCE]
            if self.direction in ("Ascendants", "Both"):
                yield from ((edge.source, edge) for edge in self.records.edges_into(account, some, limit=room))
            if self.direction in ("Descendants", "Both"):
                yield from ((edge.destination, edge) for edge in self.records.edges_from(account, some, limit=room))

    def _count(self, steps: int) -> None:
        self.visited += steps
        if self.visited > MAX_VISITED:
            raise InvalidRequest(
                f"The query would follow more than {MAX_VISITED} associations; "
                "give a Direction or a smaller MaxDepth, or begin at another entity."
            )


def _require_depth(shape: Shape) -> int:
    depth: int = shape.get("MaxDepth", MAX_DEPTH)
    if depth < 1:
        raise InvalidRequest(f"MaxDepth is {depth}; it must be 1 or more.")
    return depth


def _vertex(node: LineageNode) -> Shape:
    return {"Arn": node.arn, "Type": _vertex_type(node), "LineageType": node.lineage_type}


def _vertex_type(node: LineageNode) -> str:
    return node.type.removeprefix(JOB_TYPE_PREFIX) if node.is_experiment else node.type


def _edge(each: Association) -> Shape:
    return {"SourceArn": each.source, "DestinationArn": each.destination, "AssociationType": each.kind}


def _token(offset: int) -> str:
    return base64.urlsafe_b64encode(json.dumps({"offset": offset}).encode()).decode()


def _offset(token: str) -> int:
    if not token:
        return 0
    try:
        match json.loads(base64.b64decode(token, altchars=b"-_", validate=True)):
            case {"offset": int(offset)} if offset >= 0:
                return offset
        raise ValueError("not a token of this operation")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The NextToken is invalid.") from error
