"""The command line: the library's own verbs, and those that other packages bring by the entry-point group."""

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False)


def main() -> None:
    app()
