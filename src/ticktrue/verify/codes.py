"""The violation codes: title, meaning and remedy of each. `docs/reference/violations.md` is generated from here."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of violation, in the reader's terms.

    `title` completes "this program has ...". `text` says what the rule is and why the machine needs it.
    `remedy` says what to do about a program that breaks it.
    """

    code: str
    title: str
    text: str
    remedy: str


_COMPILE = "Compile the program again; if the compiler wrote it, that is a bug worth reporting."

_ALL: tuple[Code, ...] = (
    Code(
        "V100",
        "a stored field that contradicts its derivation",
        "A field repeats, for speed or for the reader, what follows from other fields, or it has no meaning "
        "in its row and must then be zero; and it does not agree. Examples: a period where there is one event, "
        "a bank group that is not the region's, a duration that is not the end of the last event, a packing "
        "table that does not cover a tensor, a key made for other machine facts.",
        "Compile the program again on this system. A program of another version of the machine's facts "
        "contradicts its key.",
    ),
    Code(
        "V101",
        "a unit driven twice in a cycle",
        "Two events hold one port of a compute unit (VXM, SXM, the weight-load port of the MXM, a plane) in "
        "the same cycle, or the events of one row follow each other faster than the port is free.",
        "Move one of the two chains, or give the row another port. " + _COMPILE,
    ),
    Code(
        "V102",
        "a memory port that is over-subscribed",
        "Two events hold one read or write port of a bank group in the same cycle, or the events of one row "
        "follow each other faster than the port moves their vectors.",
        "Move one of the two chains, or use another port or bank group. " + _COMPILE,
    ),
    Code(
        "V103",
        "memory read that nothing wrote",
        "A row, or the host at the end of the step, reads a vector of a scratch or inbox region that no earlier "
        "row of this step has written through that region. Scratch and inboxes do not survive a step. Reading "
        "code, or an arena itself, counts too: nothing that the program means lies there. So does naming an expert register that "
        "no LATCH of this step has written.",
        "Write the vector first; check base, step and rank part of both addresses. " + _COMPILE,
    ),
    Code(
        "V104",
        "two accesses of one address that overlap in time, one of them a write",
        "From its first to its last event a row owns the vectors it touches: a read may start only when an "
        "earlier write is in memory (last event, its hold, and the write latency), a write only when earlier "
        "reads and writes have ended. Excepted is a write that follows a read of one chain, event by event, at "
        "the same addresses. Also: a vector that another region overwrote before it was read. The same holds of the "
        "expert registers that a LATCH writes, with the latency of their write, and a GATHER names.",
        "Start the second chain later, or use two regions. " + _COMPILE,
    ),
    Code(
        "V105",
        "an operand that is not there when it is taken",
        "A value on a stream is not buffered. A row must be issued at the very cycle, and with the very "
        "progression (n, p, m, q), at which the result of each operand appears; a RECEIVE at the cycle of its "
        "SEND plus the greatest link latency of its tier plus guard; a PASS not before its tile is installed.",
        "Correct the offsets of the chain. " + _COMPILE,
    ),
    Code(
        "V106",
        "a vector that arrives with nobody listening",
        "A SEND without a RECEIVE, a RECEIVE without a SEND, a result that no row takes, or a tile that no "
        "PASS uses.",
        "Pair each SEND with one RECEIVE and remove rows whose result is not used. " + _COMPILE,
    ),
    Code(
        "V107",
        "two vectors on one link slot",
        "A vector holds its link for one slot. Two SENDs hold one link in the same cycle, or the events of one "
        "SEND follow each other faster than the link's slot.",
        "Move one of the two chains, or lengthen the period. " + _COMPILE,
    ),
    Code(
        "V108",
        "a route that does not exist",
        "A SEND goes from one chip to another that no direct link joins.",
        "Use a plan whose groups are joined in this system, or another system (`ticktrue hw list`).",
    ),
    Code(
        "V109",
        "a region outside the memory it may use",
        "A region lies outside its bank group, two regions of the image overlap, a scratch region lies outside "
        "the arena of its bank group, or the rows of a timetable need more code than the image reserves.",
        "Use more chips or a shorter context (`--chips`, `--max-model-len`). " + _COMPILE,
    ),
    Code(
        "V110",
        "a plane overwritten before its last pass",
        "An INSTALL begins on a plane that still holds a tile which a later PASS uses.",
        "Use another plane, or start the INSTALL later. " + _COMPILE,
    ),
    Code(
        "V111",
        "more live streams than exist",
        "At some cycle the results under way take more streams than the chip has.",
        "Start some chains later. " + _COMPILE,
    ),
    Code(
        "V112",
        "a malformed row or table",
        "A value out of its range, an index that points outside its table, an operand of a kind that the op "
        "does not take, or a type, width or shape that cannot be. Later checks need these to hold, so they "
        "are not made on such a timetable.",
        _COMPILE,
    ),
    Code(
        "V113",
        "a guard below the bound of clock skew",
        "The clocks of two chips may differ by skew0 + 2 * ppm * 1e-6 * g cycles, g cycles after an alignment. "
        "A RECEIVE waits `guard` cycles for that, so guard must be at least the bound at the cycle of every SEND "
        "and RECEIVE. Clocks align at the entry of a step and then every `deskew` cycles of the timetable.",
        "Compile the program again: the compiler aligns as often as the guard needs. Else raise the guard "
        "(`c2c_guard_cycles`).",
    ),
    Code(
        "V114",
        "an alignment later than an epoch allows",
        "Alignments may lie at most an epoch apart. All chips align at the entry of a step and then every "
        "`deskew` cycles (0: not again in the step). An alignment holds every queue for `deskew_hold_cycles`, and "
        "must end before the next begins.",
        "Compile the program again for this machine, or use a longer epoch or a shorter hold.",
    ),
    Code(
        "V115",
        "a receive FIFO deeper than it is",
        "A vector that arrives at the least latency of its link waits for the RECEIVE, which is timed for the "
        "greatest of its tier: for D = L_max - L_min + guard + hold cycles. The vectors that come meanwhile wait too. "
        "Of SENDs a period p apart that is ceil(D / p) + 1 vectors; all SENDs of a link count together.",
        "Lower the guard, or lengthen the period of the SEND. A timetable compiled for this machine is paced so.",
    ),
    Code(
        "V116",
        "a write where the op may not write",
        "STORE writes only scratch and inbox regions, SCATTER only state. Weights, constants and code are never "
        "written by a step.",
        "Correct the region of the row. " + _COMPILE,
    ),
    Code(
        "V117",
        "attention of another kind than the key says",
        "The key says of every layer how many heads it has, how far it sees (window) and in how many blocks its ring lies. "
        "A MASK looks at the keys of a layer, so it must name that window and ring, and in each layer and slot of the step the "
        "planes of all MASKs hold the queries of just the heads that a chip has. Readers and other checks take the key's word.",
        _COMPILE,
    ),
    Code(
        "V119",
        "a loop whose iterations are not alike or meet others than their neighbours",
        "A loop stores a body of chains once; iteration l runs it l periods later, over regions l strides further on. "
        "Loops neither overlap nor nest, a body spans at most two periods (from its first issue to its last write "
        "in memory), and no two iterations share a region that a stride moves. Then an iteration meets only its "
        "neighbours, and a few of them stand for all.",
        "Lengthen the period, or leave the loop unrolled. " + _COMPILE,
    ),
    Code(
        "V120",
        "an access that can leave its region",
        "By interval arithmetic over the events, all ranks, and the whole range of the register, some address "
        "lies outside the row's region. So one verification holds for every input.",
        "Correct base, steps and strides of the row, or enlarge the region. " + _COMPILE,
    ),
    Code(
        "V121",
        "an access that can touch another bank group",
        "As V120, and the address even lies outside the stripe of the region's bank group, whose ports the row "
        "does not hold.",
        "Correct base, steps and strides of the row. " + _COMPILE,
    ),
    Code(
        "V122",
        "a register function where it is not legal",
        "GATHER takes TOKEN and EXPERT on weights, P_DIV and P_MOD on constants, LAST on scratch and inboxes; SCATTER "
        "takes KV; no other op takes any. A register of a token exists only for t < T, one of an expert also only for a "
        "rank that some LATCH writes, NOISE has at most as many rounds as the step has rows of logits, "
        "and ACCEPT takes the tokens of slots that the step has.",
        "Correct the register function of the row. " + _COMPILE,
    ),
    Code(
        "V130",
        "a stated cycle that is not the earliest one",
        "The replay, which derives every time from the order on ports, latencies and arrivals, starts a chain at "
        "another cycle than the timetable states, and the chain is not marked as late.",
        "Compile the program again. A program of another version of the machine's facts differs here.",
    ),
    Code(
        "V140",
        "program bytes that differ from their digest",
        "The sha256 of what the file holds, or of the packed weights, is not the one that was sealed.",
        "Fetch or compile the program again: the file was changed or damaged.",
    ),
    Code(
        "V141",
        "a dataflow digest that differs from the graph's",
        "The rows are legal, but evaluated symbolically they compute another expression than the model's graph: "
        "some legal read is the wrong read.",
        "Do not use the results. " + _COMPILE,
    ),
)

CODES: Mapping[str, Code] = MappingProxyType({c.code: c for c in _ALL})
"""Every code, ascending."""


def explain(code: str) -> str:
    """Title, meaning and remedy of a code as text; empty for a code that does not exist."""
    found = CODES.get(code)
    if found is None:
        return ""
    return f"{found.code}: {found.title}\n\n{found.text}\n\nWhat to do: {found.remedy}\n"


def reference_page() -> str:
    """The page `docs/reference/violations.md`, in Markdown."""
    head = (
        "# Violations\n\n"
        "What `ticktrue verify` can find in a program, generated from `src/ticktrue/verify/codes.py`. Each violation is a value\n"
        "with a code, a message, a chip, a cycle and both culprits; `ticktrue explain CODE` prints these lines.\n"
    )
    body = [f"\n## {c.code}: {c.title}\n\n{c.text}\n\n**What to do.** {c.remedy}\n" for c in CODES.values()]
    return head + "".join(body)
