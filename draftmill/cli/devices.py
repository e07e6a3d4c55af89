"""`draftmill devices`: which devices there are to measure on, and whether one is ready."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from draftmill.cli.folder import file_path
from draftmill.cli.main import REFUSED_OR_FAILED, report
from draftmill.cli.telling import plain, printer
from draftmill.kernel_lock import held_by
from draftmill.measurement.device.lock import lock_path
from draftmill.measurement.device.preflight import Preflight, preflight
from draftmill.measurement.device.profiles import UNLIMITED, Device, find_device, load_devices
from draftmill.outcome import Refused

app = typer.Typer(no_args_is_help=True, help="Devices to measure on.")

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "--devices",
        envvar="DRAFTMILL_DEVICES",
        parser=file_path,
        metavar="FILE",
        help="A devices file; without one there is cpu.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


@app.callback()
def devices() -> None:
    """Devices to measure on."""


@app.command("list")
def list_devices(config: Config = None, as_json: AsJson = False) -> None:
    """Show the profiles, and who holds a device now."""
    found = load_devices(config)
    if as_json:
        rows = [device.model_dump(mode="json") | {"held_by": held_by(lock_path(device))} for device in found.values()]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("device", "nodes", "engine", box=None, pad_edge=False)
    for device in found.values():
        nodes = ", ".join(str(node.path) for node in device.nodes)
        table.add_row(*(plain(cell) for cell in (device.name, nodes, _engine(device))))
        if holder := held_by(lock_path(device)):
            table.add_row("", "", f"[yellow]held by {plain(holder)}[/yellow]")
    printer().print(table)


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="The profile's name.")], config: Config = None, as_json: AsJson = False
) -> None:
    """Open a device and ask its engine for it. Ends with 1 and names all that is missing when it is not ready."""
    found = preflight(find_device(config, name))
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=1))
    else:
        _show(found)
        if not found.ready:
            report(Refused(*found.refusals))
    if not found.ready:
        raise typer.Exit(REFUSED_OR_FAILED)


def _engine(device: Device) -> str:
    return device.engine if isinstance(device.engine, str) else str(device.engine.llama_server)


def _show(found: Preflight) -> None:
    console = printer()
    for label, text in _rows(found.facts):
        console.print(f"{label:<9}{plain(text)}")
    for remark in found.remarks:
        console.print(f"[yellow]remark[/]   {plain(remark)}")
    if found.ready:
        console.print(f"[green]ready[/]    {plain(found.device)} can be measured on")


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "kernel", facts["kernel"]
    for path, node in facts["nodes"].items():
        if node["opened"]:
            yield "node", f"{path} opens: {node['mode']}, group {node['group']}, number {node['number']}"
    for part in ("modules", "needs", "versions"):
        for label, text in facts[part].items():
            if text or part == "modules":  # a version that cannot be read is a remark
                yield part.removesuffix("s"), " ".join([label, *(text or "").split()])
    yield "memlock", _bytes(facts["memlock"]["soft"])
    for label, value in facts.get("memory", {}).items():
        yield "memory", f"{label} {_bytes(value)}"
    if holder := facts["held_by"]:
        yield "held by", holder
    if engine := facts.get("engine"):
        yield "engine", f"{engine['program']}, sha256 {engine['sha256'][:12]}"
        yield "version", "; ".join((engine["version"] or "not said").splitlines())
        for name, description in (engine["devices"] or {}).items():
            yield "sees", f"{name}: {description}"


def _bytes(value: int) -> str:
    return "unlimited" if value == UNLIMITED else f"{value / 2**20:,.0f} MiB"
