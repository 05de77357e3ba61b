"""Placement -> cycles: earliest starts, list scheduling, ports, streams."""

from ticktrue.schedule.schedule import duration_of, schedule, stream_widths

__all__ = ["duration_of", "schedule", "stream_widths"]
