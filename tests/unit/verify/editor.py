"""Finds a row of a compiled program by chain label and op, and changes one number of it: for planted faults."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ticktrue.isa import Op
from ticktrue.program import Program, Timetable
from ticktrue.program import columns as col


@dataclass(frozen=True)
class Editor:
    """Finds class rows of a timetable by chain label and op, and changes one."""

    program: Program

    @property
    def timetable(self) -> Timetable:
        return self.program.timetables[0]

    def rows(self, label: str, op: Op) -> list[tuple[int, int, int]]:
        """(chain, template row, class row) of every such row."""
        t = self.timetable
        start, out, at = t.template_start, [], 0
        for chain, (template, _, _) in enumerate(t.chains.tolist()):
            for i in range(int(start[template]), int(start[template + 1])):
                if t.labels[chain] == label and int(t.templates[i, col.T_OP]) == op:
                    out.append((chain, i, at))
                at += 1
        assert out, (label, op)
        return out

    def with_value(self, label: str, op: Op, nth: int, **values: int) -> Program:
        """A class row with new values; a number is added, a region given by name."""
        rows = self.timetable.rows.copy()
        row = self.rows(label, op)[nth][2]
        for name, value in values.items():
            column = col.V_NAMES.index(name)
            rows[row, column] = self.region(value) if isinstance(value, str) else rows[row, column] + value
        return self.replaced(rows=rows)

    def with_template(self, label: str, op: Op, nth: int, /, **values: int) -> Program:
        """The row of one chain with template values added to: the chain gets a template of its own."""
        t = self.timetable
        chain, row, _ = self.rows(label, op)[nth]
        template = int(t.chains[chain, 0])
        first, last = int(t.template_start[template]), int(t.template_start[template + 1])
        own = t.templates[first:last].copy()
        for name, value in values.items():
            own[row - first, col.T_NAMES.index(name)] += value
        chains = t.chains.copy()
        chains[chain, 0] = len(t.template_start) - 1
        return self.replaced(
            chains=chains, templates=np.concatenate([t.templates, own]),
            template_start=np.append(t.template_start, len(t.templates) + len(own)).astype(np.int32),
        )  # fmt: skip

    def moved(self, label: str, cycles: int) -> Program:
        """A chain at another time."""
        chains = self.timetable.chains.copy()
        chains[self.timetable.labels.index(label), 1] += cycles
        return self.replaced(chains=chains)

    def region(self, name: str) -> int:
        regions = self.program.image.regions + self.timetable.scratch
        return next(i for i, r in enumerate(regions) if r.name == name)

    def replaced(self, **changes) -> Program:
        return replace(self.program, timetables=(replace(self.timetable, **changes),))

    def pieces(self, change: Callable[[np.ndarray], None]) -> Program:
        pieces = self.program.image.pieces.copy()
        change(pieces)
        return replace(self.program, image=replace(self.program.image, pieces=pieces))


def with_tensor(program: Program, name: str, /, **changes: object) -> Program:
    """The program with other fields of one tensor of its image."""
    image = program.image
    assert any(t.name == name for t in image.tensors), name
    changed = tuple(replace(t, **changes) if t.name == name else t for t in image.tensors)  # type: ignore[arg-type]
    return replace(program, image=replace(image, tensors=changed))


def with_region(program: Program, name: str, /, **changes: object) -> Program:
    """The program with other fields of one region of its image."""
    image = program.image
    assert any(r.name == name for r in image.regions), name
    changed = tuple(replace(r, **changes) if r.name == name else r for r in image.regions)  # type: ignore[arg-type]
    return replace(program, image=replace(image, regions=changed))
