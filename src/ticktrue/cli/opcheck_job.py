"""What `ticktrue opcheck` does."""

import sys

from ticktrue.cli.documents import encode, header
from ticktrue.cli.output import Terminal
from ticktrue.cli.plan_documents import FindingPart, OpcheckDocument
from ticktrue.cli.surroundings import model_cache
from ticktrue.errors import EnvironmentProblem
from ticktrue.plan.features import State
from ticktrue.plan.opcheck import Check, opcheck

_ORDER = (State.NOT_COVERED, State.UNKNOWN, State.PLANNED, State.COVERED, State.NO_EFFECT)


def perform(ref: str, terminal: Terminal, *, all_fields: bool) -> int:
    """Checks, prints, and says whether the model runs."""
    try:
        cache = model_cache()
    except EnvironmentProblem:
        cache = None
    found = opcheck(ref, cache)
    if terminal.json:
        terminal.document(encode(_document(ref, found)))
    else:
        _tell(ref, found, terminal, all_fields=all_fields)
    return 0 if found.runs else 1


def _document(ref: str, found: Check) -> OpcheckDocument:
    parts = tuple(
        FindingPart(name=f.name, value=f.value, state=f.state.value, what=f.what, where=f.where)
        for f in found.findings
    )
    return OpcheckDocument(
        **header(sys.argv[1:]), ref=ref, family=found.family, state=found.state.value, runs=found.runs, why=found.why,
        findings=parts,
    )  # fmt: skip


def _tell(ref: str, found: Check, terminal: Terminal, *, all_fields: bool) -> None:
    verdict = {
        State.COVERED: "runs (text)",
        State.PLANNED: "its shape is counted (`ticktrue fit`), it does not run",
        State.UNKNOWN: "is read, but what some of its fields do is not known here",
    }.get(found.state, "does not run")
    terminal.line(f"{ref}: family {found.family or 'not named'}: {verdict}")
    if found.why:
        terminal.line(f"because: {found.why}")
    rows = [
        (f.state.value, f.name, f.value, f.what, f.where)
        for state in _ORDER
        for f in found.findings
        if f.state == state and (all_fields or state != State.NO_EFFECT)
    ]
    if rows:
        terminal.line()
        terminal.table(
            ("state", "operator or field", "value", "what it is", "where it matters"), rows, left=5
        )
    counts = [(state.value, sum(f.state == state for f in found.findings)) for state in _ORDER]
    terminal.line()
    terminal.line(", ".join(f"{count} {name}" for name, count in counts if count) or "nothing to look at")
