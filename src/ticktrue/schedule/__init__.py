"""Placement -> cycles: earliest starts, list scheduling, ports, streams."""

from ticktrue.schedule.links import LinkTimes, link_times
from ticktrue.schedule.schedule import schedule

__all__ = ["LinkTimes", "link_times", "schedule"]
