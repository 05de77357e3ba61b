"""Results as text: tables and timelines, pure functions of values."""

from ticktrue.report.timeline import timeline
from ticktrue.report.timing import assumed_table, share_table, timing_table, use_table
from ticktrue.report.verdict import Finding, verdict_table

__all__ = [
    "Finding",
    "assumed_table",
    "share_table",
    "timeline",
    "timing_table",
    "use_table",
    "verdict_table",
]
