"""`draftmill doctor`: what is there, what is missing, and how to mend each."""

import http.client
import json
import os
import shutil
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import typer

from draftmill.cli.telling import plain, printer
from draftmill.configuration import DEFAULT_STORE, PUBLIC_HUB
from draftmill.hub.source import given_token
from draftmill.outcome import BadConfiguration

State = Literal["ok", "missing", "optional"]
TIMEOUT_S = 5
COLOURS = {"ok": "green", "missing": "red", "optional": "yellow"}


@dataclass(frozen=True)
class Finding:
    """state "missing" means a verb will not work; "optional" that something more could."""

    part: str
    state: State
    what: str
    mend: str = ""


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_python() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    for name, use in (("prefect", "convert, demo"), ("docker", "--runner docker"), ("xllamacpp", "quantize, check")):
        found = _package(name)
        if found:
            yield Finding("python", "ok", f"{name} {found}")
        else:
            yield Finding("python", "missing", f"{name}, for {use}", "pip install 'draftmill[pipeline]', or use ./mill")


def check_hub() -> Iterator[Finding]:
    endpoint = os.environ.get("HF_ENDPOINT", PUBLIC_HUB)
    try:
        token = "a token is given" if given_token() else "no HF_TOKEN: gated repositories stay closed"
    except BadConfiguration as error:
        yield Finding("hub", "missing", str(error), "name a file that holds the token, or set HF_TOKEN")
        return
    if endpoint.startswith("file://"):
        folder = Path(unquote(urlsplit(endpoint).path))
        state: State = "ok" if folder.is_dir() else "missing"
        yield Finding(
            "hub", state, f"mirror folder {folder}", "" if state == "ok" else f"make {folder}/<owner>/<repo>/"
        )
        return
    try:
        with urllib.request.urlopen(endpoint, timeout=TIMEOUT_S):  # noqa: S310
            pass
    except urllib.error.HTTPError:
        pass  # an answer is an answer
    except (OSError, ValueError) as error:
        mend = "set HF_ENDPOINT to a hub that is reached, or to file:///folder of a mirror"
        yield Finding("hub", "missing", f"{endpoint} does not answer: {getattr(error, 'reason', error)}", mend)
        return
    yield Finding("hub", "ok", f"{endpoint} answers; {token}")


def check_store() -> Iterator[Finding]:
    url = os.environ.get("DRAFTMILL_STORE", DEFAULT_STORE)
    if url.startswith("s3://"):
        yield Finding("store", "optional", url, "draftmill store check proves what this server can do")
        return
    folder = Path(unquote(urlsplit(url).path) if url.startswith("file://") else url).absolute()
    above = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(above, os.W_OK):
        yield Finding("store", "missing", f"{folder} cannot be written", "pass --store or set DRAFTMILL_STORE")
        return
    free = shutil.disk_usage(above).free
    yield Finding("store", "ok", f"{folder}, {free / 1e9:.0f} GB free")


def check_docker() -> Iterator[Finding]:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        yield Finding("docker", "optional", f"engine at {host}", "not asked: only a local socket is")
        return
    path = host.removeprefix("unix://")
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT_S)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(TIMEOUT_S)
        connection.sock.connect(path)
        connection.request("GET", "/version")
        engine = json.loads(connection.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        mend = "optional: install and start a Docker engine for --runner docker; the process runner needs none"
        yield Finding("docker", "optional", f"no engine at {path}: {error}", mend)
        return
    finally:
        connection.close()
    yield Finding("docker", "ok", f"engine {engine['Version']}, API {engine['ApiVersion']}")


def check_engines() -> Iterator[Finding]:
    for tool, use in (("llama-quantize", "any GGUF type (--quantizer stock)"), ("llama-server", "your own engine")):
        found = shutil.which(tool)
        mend = "" if found else "optional: install llama.cpp, or build images/stock"
        yield Finding("engines", "ok" if found else "optional", f"{tool}: {found or 'not on PATH'}, for {use}", mend)


def check_devices() -> Iterator[Finding]:
    nodes = [
        ("AMD GPU", ["/dev/kfd", *map(str, sorted(Path("/dev/dri").glob("renderD*")))]),
        ("XDNA NPU", [*map(str, sorted(Path("/dev/accel").glob("accel*")))]),
    ]
    yield Finding("devices", "ok", f"cpu, {os.cpu_count()} cores")
    for name, paths in nodes:
        there = [path for path in paths if Path(path).exists()]
        usable = [path for path in there if os.access(path, os.R_OK | os.W_OK)]
        if not there:
            yield Finding("devices", "optional", f"no {name}", "")
        elif usable == there:
            yield Finding("devices", "ok", f"{name}: {', '.join(there)}")
        else:
            mend = "join the groups that own the nodes (ls -l shows them), usually render and video"
            yield Finding("devices", "optional", f"{name}: {', '.join(set(there) - set(usable))} not permitted", mend)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    check_python,
    check_hub,
    check_store,
    check_docker,
    check_engines,
    check_devices,
)


def doctor(as_json: bool = typer.Option(False, "--json", help="JSON on standard output.")) -> None:
    """Say what is there, what is missing, and how to mend it. Ends with 1 when something needed is missing."""
    findings = [finding for check in CHECKS for finding in check()]
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        console = printer()
        for finding in findings:
            mark = f"[{COLOURS[finding.state]}]{finding.state:<8}[/]"
            console.print(f"{mark} {finding.part:<8} {plain(finding.what)}")
            if finding.mend:
                console.print(f"{'':<18}mend: {plain(finding.mend)}")
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)
