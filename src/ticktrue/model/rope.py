"""RoPE frequencies, correctly rounded to float64 by decimal arithmetic (numerics row 12)."""

from decimal import Context, Decimal, localcontext

import numpy as np
import numpy.typing as npt

from ticktrue.model.spec import FactorScaling, LinearScaling, Llama3Scaling, ModelSpec

# 60 digits against the 17 of a float64: a wrong rounding would need 40 zeros or nines in a row.
_DIGITS = Context(prec=60)
_TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918")


def rope_inv_freq(spec: ModelSpec) -> npt.NDArray[np.float64]:
    """Angle per position of each rotary pair: float64[head_dim / 2], with RoPE scaling applied.

    theta ** (-2 i / head_dim), then divided or blended as `spec.rope_scaling` says; one rounding, at the end.

    Source: Su et al., RoFormer, 2021; Llama 3.1 scaling as in `transformers` `modeling_rope_utils`.
    """
    with localcontext(_DIGITS):
        log_theta = Decimal(spec.rope_theta).ln()
        exact = [(-log_theta * (2 * i) / spec.head_dim).exp() for i in range(spec.head_dim // 2)]
        scaled = [_scale(spec, i, frequency) for i, frequency in enumerate(exact)]
    table = np.array([float(value) for value in scaled], dtype=np.float64)
    table.flags.writeable = False
    return table


def _scale(spec: ModelSpec, index: int, frequency: Decimal) -> Decimal:
    match spec.rope_scaling:
        case None:
            return frequency
        case LinearScaling(factor):
            return frequency / Decimal(factor)
        case FactorScaling(factors):
            return frequency / Decimal(factors[index])
        case Llama3Scaling() as scaling:
            return _llama3(scaling, frequency)


def _llama3(scaling: Llama3Scaling, frequency: Decimal) -> Decimal:
    low, high = Decimal(scaling.low_freq_factor), Decimal(scaling.high_freq_factor)
    turns = Decimal(scaling.original_max_positions) * frequency / _TWO_PI  # over the original context
    if turns < low:
        return frequency / Decimal(scaling.factor)
    if turns > high:
        return frequency
    keep = (turns - low) / (high - low)
    return (1 - keep) * frequency / Decimal(scaling.factor) + keep * frequency
