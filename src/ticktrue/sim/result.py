"""What a replay gives: times, utilization, the critical path and where its cycles go. Plain values, no computation of times."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.program import StepKind
from ticktrue.sim.verdict import Mismatch
from ticktrue.units import Clock, Cycles

SCHEMA = "ticktrue/timing/v1"
MICROSECOND = 1_000_000

WEIGHT_LOAD = "weight load"
SRAM = "SRAM"
MXM = "MXM"
VXM = "VXM"
SXM = "SXM"
FIRST_BIT = "first-bit latency"
SERIALIZATION = "serialization"
WAIT_WEIGHT_LOAD = "waiting: weight load"
WAIT_PLANE = "waiting: plane"
WAIT_LINK = "waiting: link"
WAIT_PORT = "waiting: port"
WAIT_MEMORY = "waiting: memory reuse"
WAIT_STREAMS = "waiting: streams"
WAIT_QUEUE = "waiting: receive FIFO"
WAIT_CHAIN = "waiting: within chain"
CAUSES = (
    WEIGHT_LOAD, SRAM, MXM, VXM, SXM, FIRST_BIT, SERIALIZATION, WAIT_WEIGHT_LOAD, WAIT_PLANE, WAIT_LINK, WAIT_PORT,
    WAIT_MEMORY, WAIT_STREAMS, WAIT_QUEUE, WAIT_CHAIN,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Share:
    """Cycles of the critical path that have one cause, or belong to one phase."""

    name: str
    cycles: Cycles


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the critical path: during [begin, begin + cycles) the step is held up by `op` of chain `label`."""

    begin_cycle: Cycles
    cycles: Cycles
    chain: int
    label: str
    op: str
    cause: str


@dataclass(frozen=True, slots=True)
class UnitUse:
    """How busy the ports of one unit are: busy cycles of all of them, mean over the chips, against ports x duration."""

    unit: str
    ports: int
    busy_cycles: Cycles
    utilization: float


@dataclass(frozen=True, slots=True)
class ChainTimes:
    """Per chain, int64[chains]: the stated start, and the earliest start that the order of the program allows."""

    stated: npt.NDArray[np.int64]
    earliest: npt.NDArray[np.int64]
    marked: npt.NDArray[np.bool_]

    @property
    def late(self) -> npt.NDArray[np.int64]:
        """Stated minus earliest, int64[chains]; not zero only at chains marked late, if the program is clean."""
        return self.stated - self.earliest


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one timetable. `duration_cycles` is the stated one; it counts only while there are no `mismatches`.

    `deskew_cycles` are held for clock alignment and not counted in cycle numbers; `gap_cycles` lie between
    two steps; `host_cycles` are the host's round trip where it samples. `unbound_cycles` is what the last chains would
    take if no port, plane or memory were shared (data dependence alone).
    """

    kind: StepKind
    system: str
    chips: int
    clock: Clock
    duration_cycles: Cycles
    recomputed_cycles: Cycles
    unbound_cycles: Cycles
    deskew_cycles: Cycles
    gap_cycles: Cycles
    host_cycles: Cycles
    rows: int
    chains: ChainTimes
    mismatches: tuple[Mismatch, ...]
    use: tuple[UnitUse, ...]
    causes: tuple[Share, ...]
    phases: tuple[Share, ...]
    path: tuple[Segment, ...]
    schema: str = SCHEMA

    @property
    def clean(self) -> bool:
        """Whether every stated cycle is the one that the order gives."""
        return not self.mismatches

    @property
    def elapsed_cycles(self) -> Cycles:
        """Cycles of the wall of the machine from first issue to end: the duration and the held cycles."""
        return Cycles(self.duration_cycles + self.deskew_cycles)

    @property
    def interval_cycles(self) -> Cycles:
        """Cycles from the start of this step to the start of the next."""
        return Cycles(self.elapsed_cycles + self.gap_cycles + self.host_cycles)

    @property
    def flat_rows(self) -> int:
        """Rows on all chips."""
        return self.rows * self.chips

    @property
    def sim_duration_us(self) -> float:
        """Simulated microseconds of the duration."""
        return self.clock.seconds(self.duration_cycles) * MICROSECOND

    @property
    def sim_interval_us(self) -> float:
        """Simulated microseconds from step to step."""
        return self.clock.seconds(self.interval_cycles) * MICROSECOND

    @property
    def sim_tokens_per_s(self) -> float:
        """Simulated tokens per second of one sequence, every step giving one token: meant for kinds of T = 1."""
        return 1 / self.clock.seconds(self.interval_cycles)
