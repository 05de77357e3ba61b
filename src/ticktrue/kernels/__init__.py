"""Canonical numerics on the host CPU: one module per op family, compiled by numba, never fused, never reordered."""
