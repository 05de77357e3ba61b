"""When the chips align their clocks: as seldom as epoch and guard allow, for each alignment holds every chip."""

from ticktrue.errors import Unschedulable
from ticktrue.hw import Chip

MILLION = 1_000_000


def deskew_period(chip: Chip, chips: int, duration: int) -> int:
    """Cycles from one DESKEW to the next in a step of `duration` cycles; 0 where the one at its entry is enough.

    The longest period that is within an epoch and keeps the skew bound, skew0 + 2 ppm g cycles after an alignment, within the
    guard of a RECEIVE. One chip has nothing to align.

    Raises:
        Unschedulable: T321 if the guard is below the skew right after an alignment, or an alignment takes as long as its period.
    """
    if chips == 1:
        return 0
    guard, skew = chip.value("c2c_guard_cycles"), chip.value("skew0_cycles")
    period, drift = chip.value("epoch_cycles"), 2 * chip.value("drift_ppm")
    if drift and guard >= skew:
        period = min(period, (guard - skew) * MILLION // drift)
    if guard < skew or period < 1:
        raise Unschedulable(
            f"expected a guard of links above the skew of clocks, {skew} cycles after an alignment and drifting by "
            f"{chip.value('drift_ppm')} ppm, found {guard} cycles",
            code="T321", where=f"chip {chip.name}, fact c2c_guard_cycles", hint="raise the guard",
        )  # fmt: skip
    if duration < period:
        return 0
    if chip.value("deskew_hold_cycles") >= period:
        raise Unschedulable(
            f"expected alignments shorter than the {period} cycles from one to the next, found a hold of "
            f"{chip.value('deskew_hold_cycles')}",
            code="T321", where=f"chip {chip.name}, fact deskew_hold_cycles", hint="raise the guard, or shorten the hold",
        )  # fmt: skip
    return period
