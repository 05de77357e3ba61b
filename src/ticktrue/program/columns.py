"""Names of the integer columns in which a timetable is stored (T_*, V_*) and expanded (C_*).

T_*: columns of a template row, int32[template rows, T_COLUMNS]; one template serves many chains.
V_*: columns of what differs between chains of one template, int32[class rows, V_COLUMNS].
C_*: columns of the expanded class form, int64[rows, C_COLUMNS]; every field resolved, peers written out.
P_*: columns of the packing table of weight tiles, int32[pieces, P_COLUMNS].

Every name is a plain integer so that compiled loops can use them as constants.
"""

(
    T_OP,
    T_WIDE,
    T_GROUP,
    T_DTYPE,
    T_OFFSET,
    T_N,
    T_P,
    T_M,
    T_Q,
    T_WIDTH,
    T_S0,
    T_S1,
    T_STEP,
    T_STEP2,
    T_PATTERN,
    T_PEERS,
    T_RANKFN,
    T_RANKSTRIDE,
    T_REGFN,
    T_REGSTRIDE,
    T_X0,
    T_X1,
) = range(22)
T_NAMES = (
    "op", "wide", "group", "dtype", "offset", "n", "p", "m", "q", "width", "s0", "s1", "step", "step2",
    "pattern", "peers", "rank_fn", "rank_stride", "reg_fn", "reg_stride", "x0", "x1",
)  # fmt: skip
T_COLUMNS = len(T_NAMES)

V_REGION, V_BASE, V_PORT, V_A0, V_A1, V_A2, V_A3 = range(7)
V_NAMES = ("region", "base", "port", "a0", "a1", "a2", "a3")
V_COLUMNS = len(V_NAMES)

(
    C_CHAIN,
    C_ROW,
    C_OP,
    C_UNIT,
    C_PORT,
    C_GROUP,
    C_DTYPE,
    C_ISSUE,
    C_N,
    C_P,
    C_M,
    C_Q,
    C_W,
    C_WIDTH,
    C_S0,
    C_S1,
    C_REGION,
    C_ABS,
    C_STEP,
    C_STEP2,
    C_PATTERN,
    C_K,
    C_RANKFN,
    C_RANKSTRIDE,
    C_REGFN,
    C_REGSTRIDE,
    C_X0,
    C_X1,
    C_A0,
    C_A1,
    C_A2,
    C_A3,
    C_SPAN,
) = range(33)
C_COLUMNS = 33

P_REGION, P_VECTOR, P_ROWS, P_LANE, P_COLS, P_TENSOR, P_K0, P_COL0 = range(8)
P_NAMES = ("region", "vector", "rows", "lane", "cols", "tensor", "k0", "col0")
P_COLUMNS = len(P_NAMES)

# patterns of communication: who is in the group. Where a group spans trays, RAIL + base are its members of equal place in every
# tray, TRAY + base those in the chip's own tray: rails first, then trays, make a gather of the whole group. These are
# the patterns of the first kind of attention; those of kind k, without ALL, are k * KIND_PATTERNS further on
PATTERN_ALL, PATTERN_CONTEXT, PATTERN_HEADS = BASES = range(3)
RAIL, TRAY = 3, 6
KIND_PATTERNS = 9
# functions of rank in an address
RANK_NONE, RANK_OWN, RANK_FROM = range(3)
# reasons for a chain that starts later than its ports and data allow
ON_TIME, LATE_STREAMS, LATE_QUEUE = range(3)
