"""Clock alignments, re-derived: how often a machine must make them, how long they hold a step, and whether the program says so.

An alignment (DESKEW) holds the queues of all chips at the same global cycle g, and g does not count the cycles held: no row is
split, and a step of L cycles lasts L and the holds. Source: docs/program.md.
"""

from ticktrue.hw import System
from ticktrue.program import Timetable
from ticktrue.sim.verdict import CODE, Mismatch
from ticktrue.units import Cycles

_PER_MILLION = 1_000_000


def alignment_period(system: System) -> int:
    """Longest span between two alignments: an epoch, or less where the skew bound reaches the guard before; at least 1."""
    epoch, ppm = system.chip.value("epoch_cycles"), system.chip.value("drift_ppm")
    spare = system.chip.value("c2c_guard_cycles") - system.chip.value("skew0_cycles")
    if ppm == 0:
        return epoch
    return max(min(epoch, spare * _PER_MILLION // (2 * ppm)), 1)


def deskew_cycles(duration: Cycles, system: System, chips: int) -> Cycles:
    """Cycles held for clock alignment during `duration`: (⌊L / period⌋ + 1) · hold; a single chip has nothing to align."""
    held = (duration // alignment_period(system) + 1) * system.chip.value("deskew_hold_cycles")
    return Cycles(held if chips > 1 else 0)


def deskew_mismatches(timetable: Timetable, system: System, chips: int) -> list[Mismatch]:
    """An alignment period that is not the longest one, which costs the fewest holds."""
    period = alignment_period(system)
    expected = period if chips > 1 and timetable.duration >= period else 0
    if timetable.deskew == expected:
        return []
    text = f"clocks align every {timetable.deskew} cycles (0: at the entry of the step), expected {expected}"
    return [Mismatch(CODE, -1, timetable.deskew, expected, text)]
