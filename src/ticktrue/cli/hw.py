"""`ticktrue hw`: the machines of the catalog."""

import sys

from ticktrue.cli.output import PLAIN, Output, Terminal


def list(*, output: Output = PLAIN) -> int:  # noqa: A001 - the verb
    """All systems of the catalog.

    Example: `ticktrue hw list`

    Args:
        output: How the result is shown.
    """
    from ticktrue.hw import list_systems

    terminal, systems = Terminal(output), list_systems()
    if terminal.json:
        from ticktrue.cli.documents import SystemPart, SystemsDocument, encode, header

        parts = tuple(
            SystemPart(
                name=s.name,
                title=s.title,
                chip=s.chip,
                chips=s.chips,
                sram_bytes=s.sram_bytes,
                hops=s.hop_classes,
            )
            for s in systems
        )
        terminal.document(encode(SystemsDocument(**header(sys.argv[1:]), systems=parts)))
        return 0
    rows = [(s.name, s.title, s.chip, f"{s.chips:,}", f"{s.sram_bytes / 1e9:,.1f}") for s in systems]
    terminal.table(("system", "title", "chip", "chips", "SRAM GB"), rows, left=3)
    terminal.note("`ticktrue hw show NAME` prints every number with its source")
    return 0


def show(name: str, /, *, output: Output = PLAIN) -> int:
    """Every number of one system, with source, grade and range.

    A number is published (by the source named), derived (by arithmetic from published ones) or assumed (nobody says; its
    range is what is still believed possible).

    Example: `ticktrue hw show groq3-lpx-tray`

    Args:
        name: A name of `ticktrue hw list`.
        output: How the result is shown.
    """
    from ticktrue.cli.hw_show import tell
    from ticktrue.hw import load_system

    tell(load_system(name), Terminal(output))
    return 0
