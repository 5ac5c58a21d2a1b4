"""Cycles in a graph: the groups of nodes that can all reach each other (Tarjan, without recursion)."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def find_cycles(edges: Mapping[Node, Iterable[Node]]) -> Iterator[list[Node]]:
    """Each group of more than one node, and each node that leads to itself."""
    number: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    path: list[Node] = []
    on_path: set[Node] = set()
    for root in edges:
        if root in number:
            continue
        calls = [(root, iter(edges.get(root, ())))]
        number[root] = lowest[root] = len(number)
        path.append(root)
        on_path.add(root)
        while calls:
            node, targets = calls[-1]
            for target in targets:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    path.append(target)
                    on_path.add(target)
                    calls.append((target, iter(edges.get(target, ()))))
                    break
                if target in on_path:
                    lowest[node] = min(lowest[node], number[target])
            else:
                calls.pop()
                if calls:
                    above = calls[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == number[node]:
                    group = _cut_off(path, node)
                    on_path.difference_update(group)
                    if len(group) > 1 or node in edges.get(node, ()):
                        yield group


def _cut_off(path: list[Node], first: Node) -> list[Node]:
    """What lies on the path from its last `first` on."""
    group = [path.pop()]
    while group[-1] != first:
        group.append(path.pop())
    return group
