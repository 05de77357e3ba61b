"""Three atomic operations on an int64 array, inside compiled code that runs without the interpreter's lock.

Each orders all reads and writes of the thread around it: what one thread wrote before `add`, another sees after a `load`
that found the sum.
"""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

_BYTES = 8


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return cgutils.get_item_pointer(context, builder, signature.args[0], array, [args[1]])


@intrinsic
def claim(_typing: Any, array: Any, index: Any) -> Any:
    """array[index] becomes 1; its old value, so 0 for the one thread that was first."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("xchg", _pointer(context, builder, signature, args), one, "seq_cst")

    return types.int64(array, index), code


@intrinsic
def add(_typing: Any, array: Any, index: Any) -> Any:
    """array[index] grows by 1; its old value."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = context.get_constant(types.int64, 1)
        return builder.atomic_rmw("add", _pointer(context, builder, signature, args), one, "seq_cst")

    return types.int64(array, index), code


@intrinsic
def load(_typing: Any, array: Any, index: Any) -> Any:
    """array[index] as the other threads left it."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(context, builder, signature, args), "seq_cst", _BYTES)

    return types.int64(array, index), code
