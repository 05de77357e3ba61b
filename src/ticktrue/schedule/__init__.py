"""Placement -> cycles: earliest starts, list scheduling, ports, streams."""

from ticktrue.schedule.schedule import schedule

__all__ = ["schedule"]
