"""`ticktrue explain`: what a violation code means."""

import sys

from ticktrue.cli.output import PLAIN, Output, Terminal
from ticktrue.errors import UsageError


def explain(code: str, /, *, output: Output = PLAIN) -> int:
    """What a violation code means, and what to do.

    Example: `ticktrue explain V104`

    Args:
        code: The code of a violation, e.g. V104.
        output: How the result is shown.
    """
    from ticktrue.hw.fact import nearest
    from ticktrue.verify.codes import CODES
    from ticktrue.verify.codes import explain as text_of

    found = CODES.get(code.upper())
    if found is None:
        hint = nearest(code.upper(), CODES)
        if code[:1] in "tT":
            hint = "T codes are errors, not violations: the line that prints one says what to do"
        raise UsageError(
            f"expected the code of a violation, found {code!r}", code="T106", where="CODE", hint=hint
        )
    terminal = Terminal(output)
    if terminal.json:
        from ticktrue.cli.documents import ExplainDocument, encode, header

        document = ExplainDocument(**header(sys.argv[1:]), code=found.code, title=found.title, text=found.text,
                                   remedy=found.remedy)  # fmt: skip
        terminal.document(encode(document))
    else:
        terminal.line(text_of(found.code).rstrip())
    return 0
