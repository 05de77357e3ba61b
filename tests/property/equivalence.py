"""Rules by which a changed program is the same program: nothing that outlives a step depends on the change.

Both programs are walked side by side, row by row in order of issue, over lanes that may differ: the walk knows no weight, token
or hash. Memory is compared by what lies there: every vector is tagged with the write, or the place of the image, that it comes
from. So a region that lies elsewhere is no difference where every read still takes from the same write; a lane that differs is
none where it dies before logits, tokens, registers and state. What the rules do not know counts as different.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ticktrue.hw import System
from ticktrue.isa import Op, RegFn
from ticktrue.isa.ops import LANES, dtype_bytes, lanes_of
from ticktrue.program import AttentionKey, Image, ImageKey, Program, RegionClass, Timetable, expand
from ticktrue.program import columns as col

Lanes = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]

WHERE = {col.C_PORT, col.C_GROUP, col.C_ABS, col.C_STEP, col.C_STEP2, col.C_RANKSTRIDE, col.C_REGSTRIDE}
"""Which of equal ports carries a row, and where it finds its vectors: no value depends on them."""
LANE_BY_LANE = {Op.CONVERT, Op.ADD, Op.MUL, Op.SCALE, Op.EXP, Op.SOFTCAP, Op.SILU_MUL, Op.GELU_MUL, Op.MAX, Op.FOLD,
                Op.MASK, Op.NOISE}  # fmt: skip
ONE_ADDRESS = {RegionClass.WEIGHT, RegionClass.CONST, RegionClass.STATE, RegionClass.INBOX}
"""Regions of the image never overlap, so a place in one is told by region and offset."""
HOST_LANES = {"logits": slice(0, LANES), "next_token": slice(1, 2), "accept": slice(0, 1)}


class Different(Exception):
    """The rules do not show the two programs to be the same; says where."""


def same_program(a: Program, b: Program, system: System) -> str:
    """Empty where `b` is `a` by the rules, else what they cannot explain."""
    try:
        _same_image(a.image, b.image)
        for t, u in zip(a.timetables, b.timetables, strict=True):
            Walk.of((a.image, t), (b.image, u), system).run()
    except Different as e:
        return str(e)
    return ""


def _same_image(a: Image, b: Image) -> None:
    """All but where regions lie, and the fields of the key that no row and no region is read with."""
    if _meaning(a.key) != _meaning(b.key):
        raise Different("keys")
    if a.tensors != b.tensors or not np.array_equal(a.pieces, b.pieces) or len(a.regions) != len(b.regions):
        raise Different("tensors, pieces or the number of regions")
    for r, s in zip(a.regions, b.regions, strict=True):
        if r.cls in ONE_ADDRESS - {RegionClass.INBOX} and replace(s, group=r.group, base=r.base) != r:
            raise Different(f"region {r.name} holds something else")


def _meaning(key: ImageKey) -> ImageKey:
    """Limits of what may be asked, and the number of query heads, enter no row: a MASK has its own window and ring."""
    kinds = tuple(AttentionKey(0, k.kv_heads, k.head_dim, 0, k.ring) for k in key.attention)
    return replace(key, max_context=0, t_max=0, attention=kinds)


@dataclass
class Side:
    """One program's rows, where its regions begin, and what lies in every vector: tags int64[chips, vectors]."""

    image: Image
    rows: Int64
    address: list[Int64]
    first: dict[int, int]
    tags: Int64

    @staticmethod
    def of(image: Image, timetable: Timetable, system: System) -> "Side":
        flat = expand(image, timetable, system)
        size = np.zeros(flat.table.mem_groups, dtype=np.int64)
        for r in flat.regions:
            size[r.group] = max(size[r.group], r.base + r.vectors)
        shift = np.concatenate([[0], np.cumsum(size)[:-1]]) - np.arange(len(size)) * flat.table.group_vectors
        group = flat.rows[:, col.C_GROUP]
        chips = range(image.key.plan.chips)
        address = [flat.address(chip) + np.where(group >= 0, shift[group], 0) for chip in chips]
        first, tags = {}, np.full((len(chips), int(size.sum())), -1, dtype=np.int64)
        for i, r in enumerate(flat.regions):
            first[i] = int(shift[r.group]) + r.group * flat.table.group_vectors + r.base
            if r.cls in ONE_ADDRESS - {RegionClass.INBOX}:
                tags[:, first[i] : first[i] + r.vectors] = -((i + 1) << 32) - np.arange(r.vectors)
        return Side(image, flat.rows, address, first, tags)

    def vectors(self, chip: int, r: int) -> Int64:
        """Vectors of every event of a row: int64[m, n, width]."""
        row = self.rows[r]
        n, m, w = (np.arange(row[c]) for c in (col.C_N, col.C_M, col.C_WIDTH))
        return m[:, None, None] * row[col.C_STEP2] + n[:, None] * row[col.C_STEP] + w + self.address[chip][r]


def _by_peer(row: npt.NDArray[np.int64]) -> bool:
    """Whether the number of its copy (K) decides anything: the chip it speaks with, or the rank its address goes by."""
    return row[col.C_OP] in {Op.SEND, Op.RECEIVE} or row[col.C_RANKFN] == col.RANK_FROM


@dataclass
class Walk:
    """Both programs in step. `differs`: lanes of each row's result that may differ; `wrong`: bytes in `b`'s memory that may."""

    a: Side
    b: Side
    timetable: Timetable
    differs: list[Lanes]
    wrong: Lanes

    @staticmethod
    def of(one: tuple[Image, Timetable], other: tuple[Image, Timetable], system: System) -> "Walk":
        a, b = Side.of(*one, system), Side.of(*other, system)
        t, u = one[1], other[1]
        if a.rows.shape != b.rows.shape or (t.kind, t.outputs, t.duration, t.deskew) != (
            u.kind,
            u.outputs,
            u.duration,
            u.deskew,
        ):
            raise Different("other rows, outputs or cycles")
        nothing = [np.zeros(0, dtype=bool)] * len(a.rows)
        return Walk(a, b, t, nothing, np.zeros((*b.tags.shape, 320), dtype=bool))

    def run(self) -> None:
        """Walks all rows, then what the host reads and what outlives the step."""
        for r in np.lexsort((np.arange(len(self.a.rows)), self.a.rows[:, col.C_ISSUE])).tolist():
            row, changed = self.a.rows[r], self._changed(r)
            match Op(int(row[col.C_OP])):
                case Op.LOAD | Op.GATHER:
                    self.differs[r] = self._read(r, changed)
                case Op.STORE | Op.SCATTER:
                    self._write(r, changed)
                case Op.RECEIVE | Op.SEND:
                    self.differs[r] = self._packet(r, changed)
                case op:
                    self.differs[r] = self._result(op, r, changed)
        self._host()
        for i, region in enumerate(self.b.image.regions):
            first = self.b.first[i]
            if region.cls == RegionClass.STATE and self.wrong[:, first : first + region.vectors].any():
                raise Different(f"state {region.name}")

    def _changed(self, r: int) -> set[int]:
        """Columns in which the two rows differ, apart from where they find things; none of them moves a cycle."""
        columns = set(np.flatnonzero(self.a.rows[r] != self.b.rows[r]).tolist()) - WHERE
        if columns & {
            col.C_ISSUE,
            col.C_N,
            col.C_P,
            col.C_M,
            col.C_Q,
            col.C_OP,
            col.C_REGION,
            col.C_S0,
            col.C_S1,
        }:
            raise Different(f"row {r} in columns {columns}")
        unread = {col.C_W, col.C_SPAN}
        if not any(_by_peer(side.rows[r]) for side in (self.a, self.b)):
            unread.add(col.C_K)
        return columns - unread

    # ---- memory

    def _place(self, side: Side, r: int) -> tuple[int, ...] | None:
        """Of a row whose address a register decides: all that its place in its region is made of. None for other rows."""
        row = side.rows[r]
        fn = int(row[col.C_REGFN])
        if fn == RegFn.NONE:
            return None
        region = int(row[col.C_REGION])
        if region >= len(side.image.regions) or side.image.regions[region].cls not in ONE_ADDRESS:
            raise Different(f"row {r}: a register's address in scratch")
        base = int(side.address[0][r]) - side.first[region]
        only = fn == RegFn.P_DIV and self.timetable.kind.blocks * 64 <= 512  # p div 512 is 0
        strides = (col.C_STEP, col.C_STEP2, col.C_RANKSTRIDE, *(() if only else (col.C_REGSTRIDE,)))
        return base, *(int(row[c]) for c in strides)

    def _read(self, r: int, changed: set[int]) -> Lanes:
        row, other = self.a.rows[r], self.b.rows[r]
        if changed - {col.C_WIDTH}:
            raise Different(f"row {r}: a read with other {changed}")
        size = dtype_bytes(int(row[col.C_DTYPE]))
        widths = sorted((int(row[col.C_WIDTH]), int(other[col.C_WIDTH])))
        octets = np.zeros(widths[1] * 320, dtype=bool)
        octets[widths[0] * 320 :] = True  # brought by one of them alone
        if (place := self._place(self.a, r)) is not None:
            if place != self._place(self.b, r):
                raise Different(f"row {r}: another place")
            region = int(row[col.C_REGION])
            span = slice(self.b.first[region], self.b.first[region] + self.b.image.regions[region].vectors)
            octets[: widths[0] * 320] |= bool(self.wrong[:, span].any())
        else:
            for chip in range(len(self.a.address)):
                x, y = (s.vectors(chip, r)[..., : widths[0]] for s in (self.a, self.b))
                wrong = self.wrong[chip][y] | (self.a.tags[chip][x] != self.b.tags[chip][y])[..., None]
                octets[: widths[0] * 320] |= wrong.any(axis=(0, 1)).reshape(-1)
        lanes = octets.reshape(-1, size).any(axis=1)
        return np.concatenate([lanes, np.zeros(max(0, LANES - len(lanes)), dtype=bool)])

    def _write(self, r: int, changed: set[int]) -> None:
        if changed - {col.C_WIDTH}:
            raise Different(f"row {r}: a write with other {changed}")
        row = self.b.rows[r]
        width, dtype = int(row[col.C_WIDTH]), int(row[col.C_DTYPE])
        lanes = self.differs[int(row[col.C_S0])]
        lanes = np.concatenate([lanes, np.zeros(max(0, width * lanes_of(dtype) - len(lanes)), dtype=bool)])
        wrong = np.repeat(lanes[: width * lanes_of(dtype)], dtype_bytes(dtype)).reshape(width, 320)
        if (place := self._place(self.a, r)) is not None:
            if place != self._place(self.b, r) or changed or wrong.any():
                raise Different(f"row {r}: another place, or other values in state")
            return  # both write the same vectors of a region that no other overlaps
        for side in (self.a, self.b):
            for chip in range(len(side.address)):
                at = side.vectors(chip, r)
                event = np.arange(at.shape[0] * at.shape[1]).reshape(*at.shape[:2], 1)
                side.tags[chip][at] = (np.int64(r + 1) << 32) + event * LANES + np.arange(at.shape[2])
                if side is self.b:
                    self.wrong[chip][at] = wrong

    def _packet(self, r: int, changed: set[int]) -> Lanes:
        row, other = self.a.rows[r], self.b.rows[r]
        if changed - {col.C_WIDTH}:
            raise Different(f"row {r}: a packet with other {changed}")
        lanes = self.differs[int(row[col.C_S0])].copy()
        if col.C_WIDTH in changed:
            least = min(int(row[col.C_WIDTH]), int(other[col.C_WIDTH])) * lanes_of(int(row[col.C_DTYPE]))
            lanes[least:] = True
        return lanes

    def _host(self) -> None:
        key = self.a.image.key
        shard = -(-key.vocab // key.plan.chips)
        for o in self.timetable.outputs:
            for chip in range(key.plan.chips):
                at = [s.first[o.region] + o.base for s in (self.a, self.b)]
                each = 4 if o.name == "logits" else 1
                for v in range(o.vectors):
                    for row in range(o.rows):
                        lanes = HOST_LANES[o.name] if each == 1 else slice(0, min(LANES, shard - v * LANES))
                        need = -(-lanes.stop // 80)
                        x, y = (p + (v * o.rows + row) * each for p in at)
                        same = self.a.tags[chip, x : x + need] == self.b.tags[chip, y : y + need]
                        wrong = self.wrong[chip, y : y + need].reshape(-1, 4).any(axis=1)
                        if not same.all() or wrong[lanes].any():
                            raise Different(f"output {o.name}")

    # ---- lanes

    def _result(self, op: Op, r: int, changed: set[int]) -> Lanes:
        row, other = self.a.rows[r], self.b.rows[r]
        s0, s1 = int(row[col.C_S0]), int(row[col.C_S1])
        x = self.differs[s0]
        y = self.differs[s1] if s1 >= 0 else np.zeros(LANES, dtype=bool)
        if op == Op.INSTALL:
            return self._plane(row, other, x, changed)
        if op == Op.PASS:
            return self._pass(s1, x, y, changed)
        x, y, out = x[:LANES], y[:LANES], np.zeros(LANES, dtype=bool)
        if changed and (op, changed) not in ((Op.MERGE, {col.C_A3}), (Op.MOVE, {col.C_A1})):
            raise Different(f"row {r}: {op.name} with other {changed}")
        if op in LANE_BY_LANE:
            return x | y
        if op == Op.MERGE:
            out[: row[col.C_A3]] = x[: min(LANES, row[col.C_A0])].any()
            a, b = sorted((int(row[col.C_A3]), int(other[col.C_A3])))
            out[a : min(b, b if row[col.C_X1] else _columns(row))] = True
            return out
        out = _moved(op, row, x, y)
        if changed:  # a MOVE of fewer or more lanes
            a, b = sorted((int(row[col.C_A1]), int(other[col.C_A1])))
            out[row[col.C_A2] + a : row[col.C_A2] + b] = True
        return out

    def _plane(self, row: Int64, other: Int64, x: Lanes, changed: set[int]) -> Lanes:
        """Columns of the plane that may differ."""
        if changed - {col.C_A1, col.C_A2, col.C_X1}:
            raise Different(f"an INSTALL with other {changed}")
        out, per_row = np.zeros(LANES, dtype=bool), int(row[col.C_X0])
        lanes = x if not per_row else x[: int(row[col.C_WIDTH]) * len(x) // int(row[col.C_WIDTH])]
        if per_row:
            lanes = lanes.reshape(int(row[col.C_WIDTH]) // per_row, -1).any(axis=0)
        count = min(LANES, len(lanes))
        out[:count] = lanes[:count]
        out[: row[col.C_A1]] = False
        out[row[col.C_A2] :] = False
        for edge in (col.C_A1, col.C_A2):
            a, b = sorted((int(row[edge]), int(other[edge])))
            out[a:b] = True
        if changed and (row[col.C_X1] or other[col.C_X1]):
            out[[row[col.C_A2], other[col.C_A2]]] = True
        return out

    def _pass(self, install: int, x: Lanes, plane: Lanes, changed: set[int]) -> Lanes:
        if changed:
            raise Different(f"a PASS with other {changed}")
        row = self.a.rows[install]
        each = int(row[col.C_WIDTH]) // int(row[col.C_X0]) if row[col.C_X0] else 1
        rows = slice(int(row[col.C_A0]), int(row[col.C_A0]) + each * int(row[col.C_N]))
        return plane | x[rows].any()


def _columns(row: Int64) -> int:
    """Columns from a MERGE's first on that its sources hold; the lanes of others are +0."""
    last = int(row[col.C_A1] + row[col.C_N] - 1) // int(row[col.C_X0])
    return max(0, (last + 1) * int(row[col.C_A0]) - int(row[col.C_A2]))


def _moved(op: Op, row: Int64, x: Lanes, y: Lanes) -> Lanes:
    """Lanes of a result that depend on lanes of operands which may differ, for the ops that are not lane by lane."""
    out, x0 = np.zeros(LANES, dtype=bool), int(row[col.C_X0])
    a0, a1, a2 = (int(row[c]) for c in (col.C_A0, col.C_A1, col.C_A2))
    match op:
        case Op.MOVE:
            out[a2 : a2 + a1] = x[a0 : a0 + a1]
        case Op.INSERT:
            out |= x
            out[x0] = y[x0]
        case Op.BROADCAST:
            out |= x[0]
        case Op.MEAN_RSQRT:
            out[0] = x[0]
        case Op.SPREAD:
            out |= x[:x0].any()
        case Op.TRANSPOSE:
            out[: row[col.C_N]] = x[:x0].any()
        case Op.COMBINE:
            out[: x0 + 2] = (x | y)[: x0 + 2] | (x | y)[x0 : x0 + 2].any()
        case Op.DIVIDE:
            out[:x0] = x[:x0] | x[x0]
        case Op.CMUL:
            out[:x0] = (x | y)[:x0].any()
        case Op.ROPE:
            out[: x0 * int(row[col.C_X1])] = x[: x0 * int(row[col.C_X1])].any() or y[:x0].any()
        case Op.LANE_SUM | Op.TILE_SCALE:
            out[0] = x.any()
        case Op.QUANTISE:
            out |= x | y[0]
        case Op.LANE_ARGMAX:
            out[:2] = x[: min(LANES, a0)].any()
        case Op.TOPK:
            out[: 2 * x0] = x[: min(LANES, a0)].any()
        case Op.PICK:
            out[:2] = x[:2].any()
        case Op.ACCEPT:
            out[0] = x[1]
        case Op.LATCH if not x.any():
            pass
        case _:
            raise Different(f"{op.name} of lanes that may differ")
    return out
