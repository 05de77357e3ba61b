"""What a program computes: its rows on real weights, bit-true to docs/numerics.md."""

from ticktrue.execute.machine import Machine, StepResult

__all__ = ["Machine", "StepResult"]
