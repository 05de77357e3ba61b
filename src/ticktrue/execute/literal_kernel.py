"""Element functions of the plain path, over whole arrays."""

import numba as nb
import numpy as np

from ticktrue.kernels.functions import exp_f32, gelu_tanh_gate_f32, silu_gate_f32, tanh_f32
from ticktrue.kernels.philox import draw


@nb.njit(cache=True, error_model="numpy")
def exp_flat(x, out):
    """Exp of every element."""
    for i in range(len(x)):
        out[i] = exp_f32(x[i])


@nb.njit(cache=True, error_model="numpy")
def silu_flat(g, u, out):
    """(g * sigmoid(g)) * u of every pair."""
    for i in range(len(g)):
        out[i] = silu_gate_f32(g[i], u[i])


@nb.njit(cache=True, error_model="numpy")
def gelu_flat(g, u, out):
    """The GELU-tanh gate of every pair."""
    for i in range(len(g)):
        out[i] = gelu_tanh_gate_f32(g[i], u[i])


@nb.njit(cache=True, error_model="numpy")
def tanh_flat(x, out):
    """Tanh of every element."""
    for i in range(len(x)):
        out[i] = tanh_f32(x[i])


@nb.njit(cache=True, error_model="numpy")
def ordered_pass(x, plane):
    """out[c] = sum over k ascending of x[k] * plane[k][c], from +0: float32[320]."""
    out = np.zeros(plane.shape[1], np.float32)
    for k in range(plane.shape[0]):
        for c in range(plane.shape[1]):
            out[c] = out[c] + (x[k] * plane[k, c])
    return out


@nb.njit(cache=True, error_model="numpy")
def noise_flat(column, position, choice, k0, k1, out):
    """Gumbel noise of every column."""
    for i in range(len(column)):
        out[i] = draw(np.uint32(column[i]), position, choice, k0, k1)
