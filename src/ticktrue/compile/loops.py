"""Which layers repeat: equal nodes, regions that lie alike; and the timetable in which they are one loop."""

from dataclasses import dataclass, replace

from ticktrue.compile.build import build_layers
from ticktrue.graph.types import Graph, Node
from ticktrue.hw import System
from ticktrue.partition import ShardedGraph
from ticktrue.place.fill import layer_of
from ticktrue.program import Image, Region, Timetable
from ticktrue.schedule import schedule
from ticktrue.schedule.clock import deskew_period
from ticktrue.schedule.loops import Bodies, close_loop

LEAST_BODIES = 6
"""Fewer bodies are not worth a loop: four of them are built to see that they repeat."""
FRONTS = (2, 4)
"""Bodies that are built before the gap: until the second body already repeats the first, or a few later."""
BACK = 2


@dataclass(frozen=True, slots=True)
class Repeat:
    """`bodies` runs of `period` layers from layer `first` on have equal nodes and regions."""

    first: int
    period: int
    bodies: int

    @property
    def saved(self) -> int:
        """Layers that need not be built."""
        return (self.bodies - FRONTS[0] - BACK) * self.period


def looped_timetable(sharded: ShardedGraph, image: Image, system: System) -> Timetable | None:
    """The scheduled timetable with its equal layers as one loop; None where too few repeat, or not at once."""
    repeat = find_repeat(sharded.graph, image)
    if repeat is None:
        return None
    for front in FRONTS:
        if front + BACK >= repeat.bodies:
            break
        number = (*range(front), *range(repeat.bodies - BACK, repeat.bodies))
        chosen = {repeat.first + b * repeat.period + i for b in number for i in range(repeat.period)}
        end = repeat.first + repeat.bodies * repeat.period
        chosen |= {i for i in range(sharded.graph.spec.layers) if not repeat.first <= i < end}
        built, spans = build_layers(sharded, image, system, chosen)
        chains = tuple(
            (spans[repeat.first + b * repeat.period][0], spans[repeat.first + (b + 1) * repeat.period - 1][1])
            for b in number
        )
        found = close_loop(image, schedule(image, built, system), system, Bodies(chains, number, front))
        if found is not None:
            return replace(found, deskew=deskew_period(system.chip, sharded.plan.chips, found.duration))
    return None


def find_repeat(graph: Graph, image: Image) -> Repeat | None:
    """The run of equal bodies that leaves the fewest layers to build; None where no run is long enough."""
    nodes, regions = _node_forms(graph), _region_forms(image)
    layers = sorted(nodes)
    best: Repeat | None = None
    for period in range(1, len(layers) // LEAST_BODIES + 1):
        first = 0
        while first < len(layers):
            length = period
            while first + length < len(layers) and _same(nodes, regions, (first, length), period):
                length += 1
            repeat = Repeat(first, period, length // period)
            if repeat.bodies >= LEAST_BODIES and (best is None or repeat.saved > best.saved):
                best = repeat
            first += max(length - period, 0) + 1
    return best


def _same(
    nodes: dict[int, list[Node]],
    regions: dict[int, dict[str, tuple[int, Region]]],
    at: tuple[int, int],
    period: int,
) -> bool:
    """Whether layer first + length is as the one a period before, and its regions lie as the first layers' do."""
    first, length = at
    here, before = first + length, first + length - period
    if nodes[here] != nodes[before]:
        return False
    a, b = regions.get(before, {}), regions.get(here, {})
    if a.keys() != b.keys() or any(a[name][1] != b[name][1] for name in a):
        return False
    if length < 2 * period:
        return True
    earlier = regions.get(before - period, {})
    return all(b[name][0] - a[name][0] == a[name][0] - earlier[name][0] for name in a)


def _node_forms(graph: Graph) -> dict[int, list[Node]]:
    """The nodes of each layer, without what tells the layer: its number, and the ids of nodes and inputs."""
    out: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.layer >= 0:
            form = replace(
                node,
                id=0,
                inputs=(),
                layer=0,
                name=layer_of(node.name)[1],
                tensor=layer_of(node.tensor)[1],
                bias=layer_of(node.bias)[1],
            )
            out.setdefault(node.layer, []).append(form)
    return out


def _region_forms(image: Image) -> dict[int, dict[str, tuple[int, Region]]]:
    """By layer and name within it: the id of each region, and the region without what tells the layer."""
    out: dict[int, dict[str, tuple[int, Region]]] = {}
    for i, r in enumerate(image.regions):
        layer, name = layer_of(r.name)
        if layer >= 0:
            out.setdefault(layer, {})[name] = (i, replace(r, name="", base=0, tensor=-1, p0=0))
    return out
