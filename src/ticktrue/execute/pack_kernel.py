"""Compiled loops that lay weights out in SRAM by the packing rules of docs/program.md."""

import numba as nb


@nb.njit(cache=True)
def pack_piece(memory, at, stride, rows, lane, cols, weight, first, k0):
    """Lane + j of row k := W[first + j][k0 + k] (bf16 bits), rows `stride` lanes apart."""
    for j0 in range(0, cols, 16):
        j1 = min(cols, j0 + 16)
        for k in range(rows):
            to = at + k * stride + lane
            for j in range(j0, j1):
                memory[to + j] = weight[first + j, k0 + k]


@nb.njit(cache=True)
def pack_rows(memory, at, stride, table, first, cols):
    """Record v := columns first .. first + cols - 1 of row v (bf16 bits)."""
    cols = min(cols, table.shape[1] - first)
    for v in range(table.shape[0]):
        for j in range(cols):
            memory[at + v * stride + j] = table[v, first + j]
