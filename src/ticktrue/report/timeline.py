"""A layer's timeline in the terminal: how busy each unit is over time, and which phase runs when."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ticktrue.errors import UsageError
from ticktrue.hw import System
from ticktrue.isa import Unit
from ticktrue.program import Flat, Program, StepKind, Timetable, expand, unroll
from ticktrue.program import columns as col
from ticktrue.program.types import Int64
from ticktrue.report.columns import count
from ticktrue.sim import phase_of, pick, ports_of, row_busy, unit_name

SHADES = " ·░▒▓█"
WIDTH = 96


@dataclass(frozen=True, slots=True)
class _Window:
    """Cycles [begin, end) in `cells` columns of equal length."""

    begin: int
    end: int
    cells: int

    def edges(self) -> npt.NDArray[np.float64]:
        """Cycle at each column's edge: float[cells + 1]."""
        return np.linspace(self.begin, self.end, self.cells + 1)


def timeline(
    program: Program, system: System, layer: int, kind: StepKind | Timetable | None = None, width: int = WIDTH
) -> str:
    """The rows of one layer's chains over time: units as shades of how busy they are, phases as bars.

    Raises:
        UsageError: T131 no chain is labelled with that layer; T130 no such step kind.
    """
    timetable = unroll(pick(program, kind))
    flat = expand(program.image, timetable, system)
    chains = [i for i, name in enumerate(timetable.labels) if name.startswith(f"L{layer}.")]
    if not chains:
        layers = sorted({int(m[1]) for m in (re.match(r"L(\d+)\.", name) for name in timetable.labels) if m})
        known = f"{layers[0]} to {layers[-1]}" if layers else "none"
        raise UsageError(
            f"expected a layer of the program ({known}), found {layer}", code="T131", where="layer"
        )
    rows = np.flatnonzero(np.isin(flat.rows[:, col.C_CHAIN], chains))
    begin, end = _extent(flat, rows)
    window = _Window(begin, end, width)
    per_cell = f"{(end - begin) / width:,.1f} cycles per column"
    head = f"layer {layer}: cycles {count(begin)} to {count(end)}, {per_cell}; {SHADES.strip()} = up to 20 .. 100 % busy"
    lines = [*_units(flat, rows, window), ("", _ruler(window)), *_phases(flat, timetable, chains, window)]
    margin = max(len(name) for name, _ in lines)
    return "\n".join([head, *(f"{name.ljust(margin)} |{cells}|" if name else " " * (margin + 2) + cells
                              for name, cells in lines)])  # fmt: skip


def _extent(flat: Flat, rows: Int64) -> tuple[int, int]:
    issue = flat.rows[rows, col.C_ISSUE]
    return int(issue.min()), int((issue + flat.rows[rows, col.C_SPAN]).max())


def _units(flat: Flat, rows: Int64, window: _Window) -> list[tuple[str, str]]:
    """One line per unit that the rows use: busy port cycles of each column against all there are."""
    unit, busy, out = flat.rows[rows, col.C_UNIT], row_busy(flat)[rows], []
    issue, span = flat.rows[rows, col.C_ISSUE], flat.rows[rows, col.C_SPAN]
    edges = window.edges()
    length = (window.end - window.begin) / window.cells
    for u in Unit:
        of = unit == u
        if of.any() and ports_of(flat, u):
            done = np.clip((edges[None, :] - issue[of, None]) / span[of, None], 0, 1) * busy[of, None]
            use = np.diff(done.sum(axis=0)) / (length * ports_of(flat, u))
            out.append((unit_name(u), "".join(_shade(x) for x in use)))
    return out


def _shade(use: float) -> str:
    return SHADES[min(int(np.ceil(use * (len(SHADES) - 1) - 1e-9)), len(SHADES) - 1)]


def _ruler(window: _Window) -> str:
    """Cycle numbers under the columns at which they stand, about every sixteenth."""
    edges, text = window.edges(), ""
    for k in range(0, window.cells, 16):
        text = text.ljust(k) + f"^{count(int(edges[k]))}"
    return text


def _phases(flat: Flat, timetable: Timetable, chains: list[int], window: _Window) -> list[tuple[str, str]]:
    """One bar per phase, in order of first start: the columns in which some chain of it is under way."""
    edges = window.edges()
    bars: dict[str, npt.NDArray[np.bool_]] = {}
    for c in sorted(chains, key=lambda c: (int(flat.start[c]), c)):
        low, high = _extent(flat, np.arange(flat.row_of_chain[c], flat.row_of_chain[c + 1]))
        bar = bars.setdefault(phase_of(timetable.labels[c]), np.zeros(window.cells, dtype=bool))
        bar |= (edges[:-1] < high) & (edges[1:] > low)
    return [(name, "".join("=" if x else " " for x in bar)) for name, bar in bars.items()]
