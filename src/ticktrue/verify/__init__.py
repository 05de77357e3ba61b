"""Is it legal: every timetable of a program against the rules of the machine, for every input at once.

Sees only the assembled program and the machine, never the scheduler.
"""

from ticktrue.verify.codes import CODES, Code, explain, reference_page
from ticktrue.verify.legal import verify
from ticktrue.verify.verdict import LIMIT, Verdict, Violation

__all__ = ["CODES", "LIMIT", "Code", "Verdict", "Violation", "explain", "reference_page", "verify"]
