"""The plain path: every row as docs/program.md says it, all 320 lanes, tiles copied into planes, nothing left out.

Slow and simple; `interpreter_kernel` must give the same memory, bit for bit, after every row. Scalars of the arithmetic are the
kernels' own; everything about rows, lanes, planes and addresses is written a second time here.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ticktrue.execute.literal_kernel import (
    exp_flat,
    gelu_flat,
    noise_flat,
    ordered_pass,
    silu_flat,
    tanh_flat,
)
from ticktrue.execute.memory import Memory
from ticktrue.hw import System
from ticktrue.isa import GREEDY, Draw, Dtype, Op, RegFn
from ticktrue.isa.ops import LANES, lanes_of
from ticktrue.program import Image, Timetable, expand
from ticktrue.program import columns as col

F32 = npt.NDArray[np.float32]
SENTINEL = np.float32(-3.4028234663852886e38)
NO_LANE = 0x7FFFFFFF


class Literal:
    """One step of one timetable over a memory: `run` changes the memory as the step would."""

    def __init__(self, image: Image, timetable: Timetable, system: System, memory: Memory) -> None:
        self._flat = expand(image, timetable, system)
        self._memory = memory
        self._image = image
        self._kind = timetable.kind
        rows = self._flat.rows
        groups = rows[:, col.C_GROUP]
        shift = np.where(groups >= 0, memory.group_first[groups] - groups * self._flat.table.group_vectors, 0)
        chips = image.key.plan.chips
        self._address = [self._flat.address(c) + shift + c * memory.vectors for c in range(chips)]
        self._peer = [self._flat.peer(c) for c in range(chips)]
        self._order = np.lexsort((np.arange(len(rows)), rows[:, col.C_ISSUE]))

    def run(self, tokens: Sequence[Sequence[int]], pos: Sequence[int], draws: Sequence[Draw] = ()) -> None:
        """Every row of every chip, in issue order; `tokens`, `pos` and draw (greedy) of each slot."""
        t = self._kind.tokens
        self._draws = draws or [GREEDY] * len(tokens)
        self._token = [x for of in tokens for x in [*of, *[0] * (t - len(of))]]
        self._position = [p + i for p in pos for i in range(t)]
        self._last = [max(len(of), 1) - 1 for of in tokens]
        self._expert: dict[tuple[int, int, int], int] = {}
        self._streams: dict[tuple[int, int], F32] = {}
        with np.errstate(all="ignore"):  # lanes that a selection throws away may overflow on the way
            for r in self._order.tolist():
                for chip in range(self._image.key.plan.chips):
                    self._row(r, chip, self._flat.rows[r].tolist())

    def _row(self, r: int, chip: int, row: list[int]) -> None:
        op = row[col.C_OP]
        if op in {Op.STORE, Op.SCATTER}:
            self._store(r, chip, row)
        elif op in {Op.LOAD, Op.GATHER}:
            self._streams[r, chip] = self._load(r, chip, row)
        elif op == Op.RECEIVE:
            self._streams[r, chip] = self._streams[row[col.C_S0], int(self._peer[chip][r])]
        elif op == Op.PASS:
            self._streams[r, chip] = self._pass(chip, row)
        elif op == Op.LATCH:
            self._latch(chip, row)
        else:
            a = self._streams[row[col.C_S0], chip]
            b = self._streams.get((row[col.C_S1], chip), a)
            self._streams[r, chip] = a if op == Op.SEND else self._compute(chip, row, a, b)

    def _latch(self, chip: int, row: list[int]) -> None:
        """Ids follow the weights of a TOPK: lane k + j of event i names rank j of token row a0 + i."""
        k, x = int(self._flat.rows[row[col.C_S0], col.C_X0]), self._streams[row[col.C_S0], chip]
        for i, ids in enumerate(x.reshape(-1, x.shape[-1])[:, k : 2 * k].view(np.int32)):
            self._expert |= {(chip, row[col.C_A0] + i, rank): int(e) for rank, e in enumerate(ids)}

    def _vector(self, r: int, chip: int, row: list[int], event: tuple[int, int]) -> int | None:
        """Vector of event (i, j); None where the write is not this chip's."""
        i, j = event
        at = int(self._address[chip][r]) + i * row[col.C_STEP] + j * row[col.C_STEP2]
        plan, row0 = self._image.key.plan, row[col.C_A0] if row[col.C_REGFN] else 0
        p = self._position[row0 + i] if row[col.C_REGFN] not in {0, RegFn.LAST, RegFn.EXPERT} else 0
        match row[col.C_REGFN]:
            case RegFn.TOKEN:
                at += self._token[row0 + i] * row[col.C_REGSTRIDE]
            case RegFn.P_DIV:
                at += p // 512 * row[col.C_REGSTRIDE]
            case RegFn.P_MOD:
                at += p % 512 * row[col.C_REGSTRIDE]
            case RegFn.LAST:
                at += self._last[row0 // self._kind.tokens] * row[col.C_REGSTRIDE]
            case RegFn.EXPERT:
                at += self._expert[chip, row0 + j, row[col.C_A1]] * row[col.C_REGSTRIDE]
            case RegFn.KV:
                block = p // 64 % row[col.C_A1] if row[col.C_A1] else p // 64
                cp = plan.size(row[col.C_PATTERN])
                if block % cp != plan.index(row[col.C_PATTERN], chip) and row[col.C_OP] == Op.SCATTER:
                    return None
                at += (block // cp * 64 + p % 64) * row[col.C_REGSTRIDE]
            case _:
                pass
        return at

    def _load(self, r: int, chip: int, row: list[int]) -> F32:
        per = lanes_of(row[col.C_DTYPE])
        count = row[col.C_WIDTH] * per
        out = np.zeros((row[col.C_M], row[col.C_N], max(LANES, count)), dtype=np.float32)
        for j in range(row[col.C_M]):
            for i in range(row[col.C_N]):
                at = self._vector(r, chip, row, (i, j))
                if at is None:
                    continue
                octets = self._memory.octets[at * 320 : at * 320 + row[col.C_WIDTH] * 320]
                if row[col.C_DTYPE] == Dtype.INT8:
                    out[j, i, :count] = octets
                elif row[col.C_DTYPE] == Dtype.E4M3:
                    out[j, i, :count] = _from_e4m3(octets.view(np.uint8))
                elif row[col.C_DTYPE] == Dtype.F32:
                    out[j, i, :count] = self._memory.floats[at * 80 : at * 80 + count]
                else:
                    bits = self._memory.words[at * 160 : at * 160 + count].astype(np.uint32) << 16
                    out[j, i, :count] = bits.view(np.float32)
        return out

    def _store(self, r: int, chip: int, row: list[int]) -> None:
        x = self._streams[row[col.C_S0], chip].reshape(row[col.C_M], row[col.C_N], -1)
        count = row[col.C_WIDTH] * lanes_of(row[col.C_DTYPE])
        for j in range(row[col.C_M]):
            for i in range(row[col.C_N]):
                at = self._vector(r, chip, row, (i, j))
                if at is None:
                    continue
                if row[col.C_DTYPE] == Dtype.INT8:
                    self._memory.octets[at * 320 : at * 320 + count] = x[j, i, :count].astype(np.int8)
                elif row[col.C_DTYPE] == Dtype.E4M3:
                    self._memory.octets.view(np.uint8)[at * 320 : at * 320 + count] = _e4m3(x[j, i, :count])
                elif row[col.C_DTYPE] == Dtype.F32:
                    self._memory.floats[at * 80 : at * 80 + count] = x[j, i, :count]
                else:
                    self._memory.words[at * 160 : at * 160 + count] = _bf16_bits(x[j, i, :count])

    def _pass(self, chip: int, row: list[int]) -> F32:
        install = self._flat.rows[row[col.C_S1]].tolist()
        tile = self._streams[install[col.C_S0], chip]
        x = self._streams[row[col.C_S0], chip]
        out = np.zeros((row[col.C_M], row[col.C_N], LANES), dtype=np.float32)
        for j in range(row[col.C_M]):
            plane = self._plane(install, tile[j if install[col.C_M] > 1 else 0])
            for i in range(row[col.C_N]):
                out[j, i] = ordered_pass(np.ascontiguousarray(x[j, i, : len(plane)]), plane)
        return out

    def _plane(self, install: list[int], events: F32) -> F32:
        """The plane after INSTALL of one tile: float32[K, 320]."""
        depth = lanes_of(install[col.C_DTYPE])
        plane = np.zeros((depth, LANES), dtype=np.float32)
        per_row, rows = install[col.C_X0], events
        if per_row:
            lanes = events.shape[-1] // install[col.C_WIDTH] * per_row
            rows = events.reshape(-1)[: install[col.C_WIDTH] // per_row * lanes].reshape(-1, lanes)
        first, keep = install[col.C_A0], slice(install[col.C_A1], install[col.C_A2])
        plane[first : first + len(rows), keep] = rows[:, keep]
        if install[col.C_X1]:
            plane[first : first + len(rows), install[col.C_A2]] = 1
        return plane

    def _compute(self, chip: int, row: list[int], a: F32, b: F32) -> F32:
        op, x0 = row[col.C_OP], row[col.C_X0]
        if op == Op.INSTALL:
            return a
        if op in {Op.MAX, Op.FOLD, Op.MERGE, Op.LANE_SUM, Op.LANE_ARGMAX, Op.PICK, Op.TOPK}:
            rank = self._image.key.plan.rank(row[col.C_PATTERN], chip)
            parts = a.reshape(row[col.C_M], row[col.C_N], -1)
            return np.stack([_reduce(row, p, rank) for p in parts])[None]
        if op == Op.ACCEPT:
            parts = a.reshape(row[col.C_M], row[col.C_N], -1)
            return np.stack([self._accept(row[col.C_A0] + j, p) for j, p in enumerate(parts)])[None]
        if op in {Op.TRANSPOSE, Op.SPREAD}:
            return np.stack([_reshape(op, x0, p) for p in a])
        return self._map(chip, row, a, b)

    def _accept(self, slot: int, events: F32) -> F32:
        t = self._kind.tokens
        given = self._token[slot * t + 1 : slot * t + 1 + self._last[slot]]
        chosen = events[:, 1].view(np.int32).tolist()
        equal = [a == b for a, b in zip(chosen, given, strict=False)]
        out = np.zeros(LANES, dtype=np.float32)
        out[0] = np.int32([*equal, False].index(False)).view(np.float32)
        return out

    def _map(self, chip: int, row: list[int], a: F32, b: F32) -> F32:  # noqa: C901, PLR0912, PLR0915 - one arm per op
        d, half = row[col.C_X0], row[col.C_X0] // 2
        out = np.zeros_like(a)
        match row[col.C_OP]:
            case Op.CONVERT if row[col.C_DTYPE] == Dtype.E4M3:
                out[...] = _from_e4m3(_e4m3(a))
            case Op.TILE_SCALE:
                out[..., 0] = _tile_scale(np.abs(a[..., :LANES]).max(axis=-1), row[col.C_DTYPE])
            case Op.QUANTISE:
                q = a / b[..., :1]
                out[...] = np.rint(q) if row[col.C_DTYPE] == Dtype.INT8 else _from_e4m3(_e4m3(q))
            case Op.CONVERT:
                out[...] = (_bf16_bits(a).astype(np.uint32) << 16).view(np.float32)
            case Op.ADD:
                out = a + b
            case Op.MUL:
                out = a * b
            case Op.SCALE:
                out = a * np.int32(d).view(np.float32)
            case Op.MEAN_RSQRT:
                size, eps = (np.int32(row[c]).view(np.float32) for c in (col.C_X0, col.C_X1))
                out[..., 0] = np.float32(1) / np.sqrt(a[..., 0] / size + eps)
            case Op.CMUL:
                ca, sa, cb, sb = a[..., :half], a[..., half:d], b[..., :half], b[..., half:d]
                out[..., :half], out[..., half:d] = (ca * cb) - (sa * sb), (sa * cb) + (ca * sb)
            case Op.ROPE:
                c, s = b[..., :half], b[..., half:d]
                for h in range(row[col.C_X1]):
                    x1, x2 = a[..., h * d : h * d + half], a[..., h * d + half : h * d + d]
                    out[..., h * d : h * d + half] = (x1 * c) - (x2 * s)
                    out[..., h * d + half : h * d + d] = (x2 * c) + (x1 * s)
            case Op.EXP:
                out = np.where(a == SENTINEL, np.float32(0), _exp(a - b)).astype(np.float32)
            case Op.SILU_MUL:
                out = _elementwise(silu_flat, a, b)
            case Op.GELU_MUL:
                out = _elementwise(gelu_flat, a, b)
            case Op.SOFTCAP:
                cap = np.int32(d).view(np.float32)
                out = cap * _elementwise(tanh_flat, a / cap)
            case Op.MASK:
                out = self._mask(chip, row, a)
            case Op.NOISE:
                out = self._noise(chip, row, a)
            case Op.COMBINE:
                out = _combine(d, a, b)
            case Op.DIVIDE:
                out[..., :d] = a[..., :d] / a[..., d : d + 1]
            case Op.MOVE:
                n, to = row[col.C_A1], row[col.C_A2]
                out[..., to : to + n] = a[..., row[col.C_A0] : row[col.C_A0] + n]
            case Op.BROADCAST:
                out[...] = a[..., :1]
            case _:  # INSERT
                out[...] = a
                out[..., d] = b[..., d]
        return out

    def _mask(self, chip: int, row: list[int], a: F32) -> F32:
        plan, pattern = self._image.key.plan, row[col.C_PATTERN]
        i = np.arange(row[col.C_N])[None, :, None]
        j = np.arange(row[col.C_M])[:, None, None]
        t = (np.arange(a.shape[-1]) % row[col.C_X0])[None, None, :]
        block, window, ring = (row[col.C_A0] + j) * plan.size(pattern), row[col.C_A1], row[col.C_A2]
        block = block + plan.index(pattern, chip)
        pos = self._position[row[col.C_A3] * row[col.C_X0]]
        if ring:
            newest = (pos + row[col.C_X0] - 1) // 64
            block = newest - (newest - block) % ring
        position = 64 * block + i
        hidden = (position > pos + t) | (position < 0)
        if window:
            hidden |= position <= pos + t - window
        return np.where(hidden, SENTINEL, a).astype(np.float32)

    def _noise(self, chip: int, row: list[int], a: F32) -> F32:
        shard, total, first = row[col.C_A0], row[col.C_A1], row[col.C_A2]
        beat, lane = np.arange(row[col.C_N])[None, :, None], np.arange(a.shape[-1])[None, None, :]
        local = first + LANES * beat + lane
        column = self._image.key.plan.index(row[col.C_PATTERN], chip) * shard + local
        valid = np.broadcast_to((local < shard) & (column < total), a.shape)
        tokens = self._kind.tokens
        out = a.reshape(row[col.C_M], row[col.C_N], -1).copy()
        for j in range(row[col.C_M]):
            slot = j if self._kind.logits == "last" else j // tokens
            draw, token_row = self._draws[slot], slot * tokens + self._last[slot] if row[col.C_X0] else j
            t, seed, choice = np.float32(draw.temperature), draw.seed, draw.choice
            position = self._position[token_row] + 1
            if t:
                key = [np.uint32(w) for w in (position, choice, seed & 0xFFFF_FFFF, seed >> 32)]
                g = np.empty(column[0].size, dtype=np.float32)
                noise_flat(np.maximum(column[0], 0).ravel(), *key, g)
                out[j] = out[j] / t + g.reshape(out[j].shape)
        return np.where(valid, out.reshape(a.shape), np.float32(0)).astype(np.float32)


def _value(code: int) -> float:
    """What an e4m3 code stands for: 1 sign bit, 4 of exponent (bias 7), 3 of mantissa."""
    exponent, mantissa = code >> 3 & 15, code & 7
    size = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -size if code >> 7 else size


E4M3_VALUES = np.array([_value(code) for code in range(256)], dtype=np.float32)
"""The two that are no numbers never occur."""


def _from_e4m3(bits: npt.NDArray[np.uint8]) -> F32:
    return E4M3_VALUES[bits]


def _e4m3(x: F32) -> npt.NDArray[np.uint8]:
    """The nearest code: of two equally near the even one; 448 beyond."""
    codes = E4M3_VALUES[:127]
    m = np.minimum(np.abs(x), np.float32(448))
    above = np.searchsorted(codes, m)
    below = np.maximum(above - 1, 0)
    up, down = codes[above].astype(np.float64) - m, m - codes[below].astype(np.float64)
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)) | (above == 0), above, below)
    out: npt.NDArray[np.uint8] = (code | np.signbit(x) * 128).astype(np.uint8)
    return out


def _tile_scale(top: F32, dtype: int) -> F32:
    if dtype == Dtype.INT8:
        return np.where(top > 0, top / np.float32(127), np.float32(1)).astype(np.float32)
    mantissa, exponent = np.frexp(top.astype(np.float64))  # top = mantissa * 2^exponent, 0.5 <= mantissa < 1
    power = np.maximum(exponent - 1 - np.where(mantissa <= 0.875, 8, 7), -126)  # noqa: PLR2004 - 1.75 / 2
    return np.where(top > 0, np.ldexp(1.0, power), 1.0).astype(np.float32)


def _elementwise(function: Callable[..., None], *operands: F32) -> F32:
    flat = [np.ascontiguousarray(x).ravel() for x in operands]
    out = np.empty_like(flat[0])
    function(*flat, out)
    return out.reshape(operands[0].shape)


def _exp(x: F32) -> F32:
    return _elementwise(exp_flat, x)


def _bf16_bits(x: F32) -> npt.NDArray[np.uint16]:
    u = np.ascontiguousarray(x).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def _combine(d: int, a: F32, b: F32) -> F32:
    m1, m2 = a[..., d + 1 : d + 2], b[..., d + 1 : d + 2]
    m = np.maximum(m1, m2)
    both = (a * _exp(m1 - m)) + (b * _exp(m2 - m))
    both[..., d + 1 : d + 2] = m
    both[..., d + 2 :] = 0
    out = np.where(m1 == SENTINEL, b, both)
    return np.where(m2 == SENTINEL, a, out).astype(np.float32)


def _reshape(op: int, x0: int, events: F32) -> F32:
    out = np.zeros((x0, LANES), dtype=np.float32)
    if op == Op.SPREAD:
        out[...] = events[0, :x0, None]
    else:
        out[:, : len(events)] = events[:, :x0].T
    return out


def _reduce(row: list[int], events: F32, rank: int) -> F32:
    out = np.zeros(LANES, dtype=np.float32)
    match row[col.C_OP]:
        case Op.MAX:
            out[...] = np.maximum(events.max(axis=0), SENTINEL)
        case Op.FOLD:
            for e in events:
                out = out + e
        case Op.LANE_SUM:
            s = np.zeros(512, dtype=np.float32)
            for e in events:
                s[:LANES] = s[:LANES] + e
            for h in (256, 128, 64, 32, 16, 8, 4, 2, 1):
                n = min(h, LANES - h)
                s[:n] = s[:n] + s[h : h + n]
            out[0] = s[0]
        case Op.MERGE:
            _merge(row, events, out)
        case Op.TOPK:
            _topk(row[col.C_X0], events.reshape(-1)[: row[col.C_A0]], out)
        case Op.PICK:
            index = events[:, 1].view(np.int32)
            best = min(range(len(events)), key=lambda k: (-float(events[k, 0]), int(index[k])))
            out[:2] = events[best, :2]
        case _:
            _argmax(row, events, out, rank)
    return out


def _topk(k: int, logits: F32, out: F32) -> None:
    ids: list[int] = []
    for _ in range(k):
        left = [c for c in range(len(logits)) if c not in ids]
        best = left[0]
        for c in left:
            best = c if logits[c] > logits[best] else best
        ids.append(best)
    e = _exp(logits[ids] - logits[ids[0]])
    total = np.float32(0)
    for x in e:
        total = total + x
    out[:k] = e / total
    out[k : 2 * k] = np.array(ids, dtype=np.int32).view(np.float32)


def _merge(row: list[int], events: F32, out: F32) -> None:
    cols, beats, col0, count, gap = row[col.C_A0], row[col.C_X0], row[col.C_A2], row[col.C_A3], row[col.C_X1]
    half = count // 2 if gap else count
    wanted = {col0 + lane + (gap - half if lane >= half else 0): lane for lane in range(count)}
    for i, e in enumerate(events):
        r, v = divmod(row[col.C_A1] + i, beats)
        for lane in range(min(LANES, cols - v * LANES)):
            column = r * cols + v * LANES + lane
            if column in wanted:
                out[wanted[column]] = e[lane]


def _argmax(row: list[int], events: F32, out: F32, rank: int) -> None:
    shard, total = row[col.C_A0], row[col.C_A1]
    local = row[col.C_A2] + np.arange(events.size).reshape(events.shape)
    valid = (local < shard) & (rank * shard + local < total)
    index = np.where(valid, rank * shard + local, NO_LANE)
    value = np.where(valid, events, SENTINEL)
    best = value.max()
    out[0] = best
    out[1] = np.int32(index[valid & (value == best)].min(initial=NO_LANE)).view(np.float32)
