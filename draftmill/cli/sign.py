"""`draftmill sign`: vouch for what is published, with a key file."""

from pathlib import Path
from typing import Annotated

import typer

from draftmill.cli.ending import ending, print_json
from draftmill.cli.folder import file_path
from draftmill.cli.retrieval import AsJson, Credentials, Ref, Store, open_catalogue
from draftmill.cli.telling import plain, printer
from draftmill.configuration import DEFAULT_STORE


def sign(
    ref: Ref,
    key: Annotated[
        Path,
        typer.Option(
            envvar="DRAFTMILL_SIGN_KEY",
            parser=file_path,
            metavar="FILE",
            help="Your private key: PEM, elliptic curve.",
            show_default=False,
        ),
    ],
    store: Store = DEFAULT_STORE,
    credentials_file: Credentials = None,
    as_json: AsJson = False,
) -> None:
    """Sign a publication where it lies, beside what others signed; what is not as its manifest says is not signed.

    Ends with 0 also when this key signed it before.
    """
    from draftmill.store.sign import sign as sign_publication

    with ending(as_json):
        catalogue = open_catalogue(store, credentials_file)
        place = catalogue.find(ref)
        made = sign_publication(catalogue.store, f"{place.folder}/manifest.json", key)
        if as_json:
            print_json(
                {
                    "outcome": "ok",
                    "publication": str(place),
                    "signature": made.where,
                    "key": made.key,
                    "created": made.created,
                }
            )
        else:
            said = "signed" if made.created else "signed before"
            printer().print(f"[green]{said}[/] {plain(str(place))} with the key {made.key[:16]}: {plain(made.where)}")
