"""Every page comes out of a template here: nothing in a value is markup, hides or reorders text, or loads anything.

A value is made visible (`visible`) and escaped on its way into a page, unless a template marks it as our own markup
(`|safe`, which only plots are). A name that a template misses is an error. The policy that a page carries allows the
style and the script that it was made with, known by their digests, and nothing else: no other script, no picture, no
font, no request.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from draftmill.reports.document import Verbatim
from draftmill.reports.plot import PLOT_STYLE
from draftmill.reports.visible import visible

STYLE, SCRIPT = "style.css", "catalogue.js"


def render(template: str, *, script: str | None = None, **values: Any) -> str:
    """The page of a template of `templates/`. script: the file there that it runs. Raises jinja2.UndefinedError."""
    page = environment().get_template(template)
    return page.render(
        style=Markup(read(STYLE)),  # noqa: S704 - our own file
        script=Markup(read(script)) if script else "",  # noqa: S704 - our own file
        policy=policy(script),
        **values,
    )


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("draftmill.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"value": _value, "words": _words}
    return made


@cache
def read(name: str) -> str:
    """A file of `templates/` that goes into pages as it is."""
    return files("draftmill.reports").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def policy(script: str | None) -> str:
    """Content-Security-Policy (W3C CSP level 3): hashes of what stands in the page between its tags."""
    scripts = _hashes([read(script)]) if script else "'none'"
    styles = _hashes([read(STYLE), PLOT_STYLE])
    return f"default-src 'none'; style-src {styles}; script-src {scripts}; base-uri 'none'; form-action 'none'"


def _hashes(texts: Iterable[str]) -> str:
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markup) else visible(str(value))


def _value(value: Any) -> Markup:
    """A JSON value: text as it is, all else as JSON in a fixed width."""
    if isinstance(value, str) and not isinstance(value, Verbatim):
        return Markup("{}").format(visible(value))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Markup("<code>{}</code>").format(visible(text))


def _words(value: str) -> str:
    """An outcome as the name of a class."""
    return value.replace(" ", "-")
