"""The hash algebra of the dataflow digest: mixing functions shared by `verify` (rows) and `graph` (tensors).

An element is a 64-bit hash; 0 is an exact zero. Only these few functions are shared: what is hashed, and in which order, each
side decides for itself, from the rows or from the numerics table. docs/dataflow.md says which function stands for which op.
"""

import hashlib

import numba as nb
import numpy as np

U = np.uint64
_A = U(0x9E3779B97F4A7C15)
_B = U(0xBF58476D1CE4E5B9)
_C = U(0x94D049BB133111EB)
_ONE = U(1)
S32 = U(32)
S29 = U(29)
SENTINEL = U(0x5E47144E1D0FF1CE)  # "no visible position here"; even, as no other hash is
ZERO = U(0)
STEP = U(0xD1342543DE82EF95)  # multiplier of the ordered sum; 5 mod 8, so its powers below 2^62 all differ
BAD = U(0xBAD)  # mixed into what must not be


def base(name: str) -> np.uint64:
    """Hash that the elements of the tensor `name` start from: 8 bytes of sha256, made odd."""
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1)


def tag(op: str) -> np.uint64:
    """Hash that the results of `op` start from."""
    return base("op." + op)


@nb.njit(cache=True)
def mix(a, b):
    """Ordered hash of two 64-bit values, never 0 (splitmix64 finaliser, Steele et al. 2014)."""
    z = U(a) * _A + U(b) + _C
    z = (z ^ (z >> U(30))) * _B
    z = (z ^ (z >> U(27))) * _C
    return (z ^ (z >> U(31))) | _ONE


@nb.njit(cache=True)
def leaf(base, index):
    """Hash of element `index` of a tensor whose base hash is `base`; never 0. Cheap: made on the fly for every weight."""
    z = (U(base) ^ U(index)) * _A
    return (z ^ (z >> S32)) | _ONE


@nb.njit(cache=True)
def product(a, b):
    """Commutative, not associative hash of a * b; exact zero times anything is zero."""
    if a == ZERO or b == ZERO:
        return ZERO
    z = (a ^ b) + (a * b)
    return (z ^ (z >> S29)) | _ONE


@nb.njit(cache=True)
def add(a, b):
    """Commutative, not associative hash of a two-operand sum; a + 0 = a."""
    if a == ZERO:
        return b
    if b == ZERO:
        return a
    return mix(a + b, (a ^ b) ^ _B)


@nb.njit(cache=True)
def select(old, new, key):
    """Hash of "new where the register says so, else old"; `key` names the register's value. Zero only where both are."""
    if old == ZERO and new == ZERO:
        return ZERO
    z = (old ^ key) * _B
    z = ((z ^ (z >> S32)) + new) * _C
    return (z ^ (z >> S29)) | _ONE


@nb.njit(cache=True)
def seal(tagged, total):
    """Hash of an ordered sum of products whose terms sum to `total`; 0 if there was no term."""
    if total == ZERO:
        return ZERO
    return mix(tagged, total)
