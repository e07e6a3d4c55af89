"""The command line: the library's own verbs, and those that other packages bring by the entry-point group.

Exit codes: 0 pass, 1 refused or failed, 2 usage, 3 no verdict, 130 interrupted. JSON goes to standard output,
problems to standard error.
"""

import os
import sys

INTERRUPTED = 130
try:
    from contextlib import suppress
    from importlib.metadata import entry_points
    from typing import Any

    import typer
    from rich.console import Console
    from typer.core import TyperGroup

    from draftmill import __version__
    from draftmill.cli.telling import plain, tell
    from draftmill.outcome import InputOutput, MillError, Refused
except KeyboardInterrupt:
    # These take the first tenths of a second: whoever ends it then sees no traceback of an import.
    sys.exit(INTERRUPTED)

REFUSED_OR_FAILED, USAGE = 1, 2
VERBS = "draftmill.verbs"
GO_ON = ("convert", "catalogue", "pull")
"""Verbs that take up where an interrupted one ended."""


def report(error: MillError) -> None:
    """One error, or every finding of a refusal, on standard error."""
    console = Console(emoji=False, stderr=True, soft_wrap=True)
    if isinstance(error, Refused):
        for refusal in error.refusals:
            tell(console, "refused", refusal.as_json())
    else:
        # A line that a stranger's text brings stays an indented one.
        lines = "\n  ".join(plain(line) for line in str(error).split("\n"))
        console.print(f"[red]failed[/red] {plain(error.code)}: {lines}")


class Verbs(TyperGroup):
    """Ends every mill error as a sentence and an exit code instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MillError as error:
            report(error)
            sys.exit(REFUSED_OR_FAILED)
        except KeyboardInterrupt:
            kept = "; what was finished is kept: the same command goes on" if ctx.invoked_subcommand in GO_ON else ""
            Console(emoji=False, stderr=True, soft_wrap=True).print(f"[red]interrupted[/red]{kept}")
            sys.exit(INTERRUPTED)


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=bool(os.environ.get("DRAFTMILL_DEBUG")),
    help="Published speculative-decoding drafters, made into artifacts to trust, or refused with the reason.",
)


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Print the version and end.")) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Ends an interrupt, and what cannot be read or written, without a traceback."""
    try:
        try:
            _run()
        finally:
            if sys.stdout:  # None when it was closed
                sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if os.environ.get("DRAFTMILL_DEBUG"):
            raise
        _drop_output()
        if not isinstance(error, BrokenPipeError):  # whoever read it has had enough
            report(InputOutput(f"{error}; look at the disk, and at where the output goes."))
        sys.exit(REFUSED_OR_FAILED)


def _drop_output() -> None:
    """What is left in the buffer would fail again when the interpreter ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    from draftmill.cli import (
        devices,
        dflash,
        doctor,
        index,
        list,
        measure,
        pull,
        show,
        sign,
        store,
        tokenizers,
        validate,
    )

    app.command("doctor")(doctor.doctor)
    app.command("validate")(validate.validate)
    app.command("list")(list.list_)
    app.command("show")(show.show)
    app.command("pull")(pull.pull)
    app.command("verify")(pull.verify)
    app.command("sign")(sign.sign)
    app.command("url")(pull.url)
    store.app.command("index")(index.index)
    app.add_typer(store.app, name="store")
    app.add_typer(dflash.app, name="dflash")
    app.add_typer(tokenizers.app, name="tokenizers")
    app.add_typer(devices.app, name="devices")
    app.add_typer(measure.app, name="measure")
    for point in entry_points(group=VERBS):
        try:
            verb = point.load()
        except ModuleNotFoundError as missing:
            app.command(point.name, help=f"(needs {missing.name}: pip install 'draftmill[pipeline]')")(
                _missing(missing)
            )
            continue
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=point.name)
        else:
            app.command(point.name)(verb)
    app()


def _missing(error: ModuleNotFoundError) -> Any:
    def verb() -> None:
        typer.echo(f"this verb needs {error.name}: pip install 'draftmill[pipeline]'", err=True)
        raise typer.Exit(REFUSED_OR_FAILED)

    return verb
