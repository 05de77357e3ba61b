"""What `ticktrue diff` does."""

import sys
from itertools import groupby

from ticktrue.cli.diff import SHOWN_PER_SECTION
from ticktrue.cli.documents import DiffDocument, DifferencePart, encode, header
from ticktrue.cli.output import Terminal
from ticktrue.cli.program_file import read_file
from ticktrue.program.diff import diff


def perform(first: str, second: str, terminal: Terminal, *, everything: bool) -> int:
    """Compares; gives the exit status."""
    a, b = read_file(first), read_file(second)
    found = diff(a.program, b.program)
    if terminal.json:
        parts = tuple(
            DifferencePart(section=d.section, what=d.what, first=d.first, second=d.second) for d in found
        )
        document = DiffDocument(**header(sys.argv[1:]), first=a.where, second=b.where, first_sha256=a.decoded.computed,
                                second_sha256=b.decoded.computed, equal=not found, differences=parts)  # fmt: skip
        terminal.document(encode(document))
    elif not found:
        terminal.line(f"the same program, sha256 {a.decoded.computed}")
    else:
        for section, group in groupby(found, key=lambda d: d.section):
            lines = list(group)
            shown = lines if everything else lines[:SHOWN_PER_SECTION]
            for difference in shown:
                terminal.line(str(difference))
            if len(lines) > len(shown):
                terminal.line(f"{section}: {len(lines) - len(shown):,} more (--everything)")
        terminal.line(f"{len(found):,} difference{'s' * (len(found) != 1)}")
    return 1 if found else 0
