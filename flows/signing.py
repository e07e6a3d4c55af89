"""The publisher's signing key: a file that the control plane reads, and nothing else hears of.

Its path travels in this process's environment alone: a flow's parameters, a job's environment, log lines and manifests
do not have it. A worker gets it where the stack mounts the secret.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from draftmill.cli.folder import file_path
from draftmill.store.interface import Store
from draftmill.store.publish import Published

VARIABLE = "DRAFTMILL_SIGN_KEY"

SignKey = Annotated[
    Path | None,
    typer.Option(
        envvar=VARIABLE,
        parser=file_path,
        metavar="FILE",
        help="Sign what is published with this private key: PEM, elliptic curve.",
    ),
]


def use_key(path: Path | None) -> None:
    """For what this process publishes from now on."""
    if path:
        os.environ[VARIABLE] = str(path.absolute())


def check_key() -> None:
    """Before the long work. Raises BadConfiguration where a key is named that nothing could be signed with."""
    if key := _key():
        from draftmill.signing.keys import key_id_of_private

        key_id_of_private(key)


def signed(store: Store, published: Published) -> Published:
    """Signs it, where a key is given and did not sign it before: also what an earlier run published and left unsigned.

    Raises Refused, BadConfiguration, and what the store raises. The publication stands then, unsigned.
    """
    if key := _key():
        from draftmill.store.sign import sign

        # What was just published was held against its manifest by the publisher.
        sign(store, published.manifest.key, key, look=not published.created)
    return published


def _key() -> Path | None:
    given = os.environ.get(VARIABLE)
    return Path(given) if given else None
