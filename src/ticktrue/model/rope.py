"""RoPE frequencies, correctly rounded to float64 by decimal arithmetic (numerics row 12)."""

from decimal import Context, Decimal, localcontext

import numpy as np
import numpy.typing as npt

from ticktrue.model.spec import (
    Attention,
    FactorScaling,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    RopeScaling,
)

# 60 digits against the 17 of a float64: a wrong rounding would need 40 zeros or nines in a row.
_DIGITS = Context(prec=60)
_TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918")


def rope_inv_freq(of: ModelSpec | Attention) -> npt.NDArray[np.float64]:
    """Angle per position of each rotary pair: float64[head_dim / 2], with RoPE scaling applied.

    A ModelSpec stands for its full layers. theta ** (-2 i / head_dim), then divided or blended as `of.rope_scaling`
    says; one rounding, at the end. Pairs past `of.rotary_fraction` of them do not turn: 0.

    Source: Su et al., RoFormer, 2021; Llama 3.1 scaling as in `transformers` `modeling_rope_utils`.
    """
    turning = int(of.rotary_fraction * of.head_dim // 2)
    with localcontext(_DIGITS):
        log_theta = Decimal(of.rope_theta).ln()
        exact = [(-log_theta * (2 * i) / of.head_dim).exp() for i in range(turning)]
        scaled = [_scale(of.rope_scaling, i, frequency) for i, frequency in enumerate(exact)]
    table = np.array(
        [float(value) for value in scaled] + [0.0] * (of.head_dim // 2 - turning), dtype=np.float64
    )
    table.flags.writeable = False
    return table


def _scale(scaling: RopeScaling | None, index: int, frequency: Decimal) -> Decimal:
    match scaling:
        case None:
            return frequency
        case LinearScaling(factor):
            return frequency / Decimal(factor)
        case FactorScaling(factors):
            return frequency / Decimal(factors[index])
        case Llama3Scaling() as ramp:
            return _llama3(ramp, frequency)


def _llama3(scaling: Llama3Scaling, frequency: Decimal) -> Decimal:
    low, high = Decimal(scaling.low_freq_factor), Decimal(scaling.high_freq_factor)
    turns = Decimal(scaling.original_max_positions) * frequency / _TWO_PI  # over the original context
    if turns < low:
        return frequency / Decimal(scaling.factor)
    if turns > high:
        return frequency
    keep = (turns - low) / (high - low)
    return (1 - keep) * frequency / Decimal(scaling.factor) + keep * frequency
