"""What every chain builder shares: shapes, regions by name, and the gather-and-merge of a cut result."""

from dataclasses import dataclass, replace

from ticktrue.compile.chains import At, Chain, ChainWriter, progress
from ticktrue.isa import Dtype, Op
from ticktrue.partition import Cut, Shapes, ShardedGraph
from ticktrue.place import Phase
from ticktrue.program import columns as col


@dataclass(frozen=True, slots=True)
class Step:
    """A step under construction, over an image made for `image_slots` sequences."""

    sharded: ShardedGraph
    writer: ChainWriter
    phases: dict[str, Phase]
    image_slots: int

    @property
    def s(self) -> Shapes:
        """Sizes of the step."""
        return self.sharded.shapes

    def at(self, name: str, base: int = 0, step: int = 0, step2: int = 0, **more: int) -> At:
        """An address in the region called `name`."""
        return At(self.writer.index[name], base, step, step2, **more)

    def chain(self, label: str) -> Chain:
        """A new chain."""
        return self.writer.chain(label)

    def rounded(self, c: Chain, row: int) -> int:
        """CONVERT to bf16, or nothing in format f32."""
        return c.op(Op.CONVERT, row, dtype=Dtype.BF16) if self.s.act == Dtype.BF16 else row

    def group(self, pattern: int) -> int:
        """Chips of one group of a pattern."""
        return self.sharded.plan.size(pattern)

    def near(self, pattern: int) -> int:
        """The pattern in which a gather of a group starts: along rails if the group spans trays, else the group itself."""
        return col.RAIL + pattern if self.sharded.plan.split(pattern) else pattern


def all_gather(
    step: Step, label: str, source: str, inbox: str, cut: Cut, pattern: int = col.PATTERN_ALL
) -> None:
    """Each chip's shard (beats x rows of `cut`) to every chip of the pattern: inbox[source][beat][row]."""
    t = step.s.rows
    for beat in range(cut.beats):
        base = beat * t * cut.width
        name = f"{label}[{beat}]" if cut.beats > 1 else label
        ends = (step.at(source, base, cut.width), step.at(inbox, base, cut.width))
        exchange(step, name, ends, cut, t, pattern)


def exchange(step: Step, label: str, ends: tuple[At, At], cut: Cut, events: int, pattern: int) -> None:
    """`events` beats from ends[0] into the inbox ends[1]: the chip's own slot (one chain) and every peer's (another).

    Two chains, because arrivals keep the inbox's ports busy at the links' pace and the own copy must not have to fit between.
    Where the group spans trays, the second reaches the chips of equal place in the other trays, and a third goes on from there.
    """
    source, inbox = ends
    stride = step.s.rows * cut.width * cut.beats
    at = replace(inbox, pattern=pattern, rank_stride=stride)
    c = step.chain(f"{label}.keep")
    x = c.load(source, progress(events, p=c.pace(cut.width)), cut.dtype, cut.width)
    c.store(x, replace(at, rank_fn=col.RANK_OWN), cut.dtype, cut.width)
    c.end()
    if step.group(pattern) > 1:
        near = step.near(pattern)
        for name, part, width in packets(step, label, cut.width):
            c = step.chain(f"{name}.gather")
            pr = progress(events, p=step.writer.slots[near] * width)
            x = c.load(replace(source, base=source.base + part), pr, cut.dtype, width)
            there = replace(at, base=at.base + part, pattern=near, rank_fn=col.RANK_FROM)
            c.store(c.exchange(x, near, cut.dtype, width), there, cut.dtype, width, peers=True)
            c.end()
        relay(step, label, at, (events, cut.dtype, cut.width))


def packets(step: Step, label: str, width: int) -> list[tuple[str, int, int]]:
    """(label, first vector, vectors) of the packets in which `width` vectors go over links.

    What comes from several peers is stored a cycle apart by all write ports in turn, so a packet is what a port takes in one.
    """
    found = step.writer.pieces(width)
    return [(f"{label}.{first}" if len(found) > 1 else label, first, part) for first, part in found]


def relay(step: Step, label: str, inbox: At, what: tuple[int, Dtype, int]) -> None:
    """Second step of a gather whose group spans trays: each chip sends on, inside its tray, what it has from every tray.

    `what` = (messages of one source, their type, their vectors). Afterwards the inbox holds every source of the group, in order.
    Nothing where the group is one tray.
    """
    base = inbox.pattern
    if not step.sharded.plan.split(base):
        return
    events, dtype, width = what
    for name, first, part in packets(step, label, width):
        _relay(step, name, replace(inbox, base=inbox.base + first), (events, dtype, part, width))


def _relay(step: Step, label: str, inbox: At, what: tuple[int, Dtype, int, int]) -> None:
    """One packet of each message. `what` = (messages, type, vectors of the packet, of the message)."""
    plan, (events, dtype, width, whole) = step.sharded.plan, what
    base = inbox.pattern
    tray = col.TRAY + base
    trays, pace, apart = (
        plan.size(col.RAIL + base),
        step.writer.slots[tray] * width,
        plan.inner(base) * inbox.rank_stride,
    )
    # one message of each source: the trays are the events, so that they stay a run of equal steps
    steps, pr = (
        ((whole, apart), progress(events, trays, p=pace))
        if events > 1
        else ((apart, 0), progress(trays, p=pace))
    )
    at = replace(inbox, pattern=tray, step=steps[0], step2=steps[1])
    c = step.chain(f"{label}.relay")
    x = c.load(replace(at, rank_fn=col.RANK_OWN), pr, dtype, width)
    received = c.exchange(x, tray, dtype, width)
    c.store(received, replace(at, rank_fn=col.RANK_FROM), dtype, width, peers=True)
    c.end()


def merge(
    step: Step, c: Chain, inbox: str, cut: Cut, columns: tuple[int, int], rows: tuple[int, int] | None = None
) -> int:
    """Columns (first, count) of a gathered result as one beat per row. `rows` = (first, count), all of them by default."""
    first, count = columns
    t = step.s.rows
    row, events = rows or (0, t)
    u0, n = cut.span(first, count)
    record = t * cut.width
    pr = progress(n, events) if events > 1 else progress(n)
    x = c.load(step.at(inbox, u0 * record + row * cut.width, record, cut.width), pr, cut.dtype, cut.width)
    return c.op(Op.MERGE, x, x=(cut.beats, 0), a=(cut.shard, u0, first, count))
