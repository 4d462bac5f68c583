"""``walkserve doctor``: what is installed here, what is broken, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

if TYPE_CHECKING:
    from walkserve.cli.checkup import Finding

MARKS = {"well": ("✓", "green"), "warning": ("!", "yellow"), "broken": ("✗", "red")}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
def command(as_json: bool, strict: bool) -> int:
    """Look at what is installed, and say what is broken and how to mend it.

    Every plugin is imported, each by itself; torch is imported in a process of its own. Exits with 1 if
    something is broken.
    """
    from walkserve.cli.checkup import check_up, is_bad

    findings = list(check_up())
    if as_json:
        import msgspec

        said = {"well": not is_bad(findings, strict=strict), "findings": findings}
        click.echo(msgspec.json.format(msgspec.json.encode(said), indent=2))
    else:
        _print(findings)
    return 1 if is_bad(findings, strict=strict) else 0


def _print(findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    from walkserve.cli.pages import page

    console = page()
    for area in dict.fromkeys(finding.area for finding in findings):
        console.print(Text(area, style="bold"))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column()
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for each in (finding for finding in findings if finding.area == area):
            mark, colour = MARKS[each.state]
            says = Text(each.says, style="" if each.state == "well" else colour)
            for line in each.trace:
                says.append(f"\n  {line}", style="dim")
            grid.add_row(Text(f"  {mark}", style=colour), each.name, says)
        console.print(grid)
        console.print()
    count = {state: sum(finding.state == state for finding in findings) for state in MARKS}
    verdict = "Something is broken." if count["broken"] else "All is well."
    more = f" {count['warning']} warning{'s' * (count['warning'] != 1)}." if count["warning"] else ""
    console.print(Text(verdict + more, style="red" if count["broken"] else "green"))
