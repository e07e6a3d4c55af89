"""Options that a command line gives, where another option or input makes them mean nothing."""

from collections.abc import Collection

import typer


def refuse_given(context: typer.Context, names: Collection[str], why: str) -> None:
    """names: of parameters. Raises BadParameter that names every one of them that is given, its default included."""
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names and _is_given(context, parameter.name)
    ]
    if given:
        raise typer.BadParameter(why, param_hint=", ".join(given))


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
