"""`draftmill images`: build the images that jobs run in."""

from typing import Annotated

import typer

from flows.display import progress_of, shown
from flows.images import DEFAULT, IMAGES, build_images
from flows.runners.docker_engine import connect

app = typer.Typer(no_args_is_help=True, help="The images that jobs run in.")


@app.callback()
def images() -> None:
    """The images that jobs run in."""


@app.command()
def build(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(IMAGES)}; default {', '.join(DEFAULT)}.")
    ] = None,
) -> None:
    """Build what is missing or older than the source; print the tag and ID of each."""
    with shown(False) as display:
        title = "build images"
        display.started(title, "asked for")
        built = build_images(connect(), names or DEFAULT, progress_of(display, title))
        display.ended(title, "ok")
    for tag, identifier in built.items():
        typer.echo(f"{tag} {identifier}")
