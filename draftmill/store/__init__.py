"""Where artifacts are published: an S3 bucket or a local folder, with the same keys and the same promises.

`opening.open_store` gives a store for an address, `probe.ready_store` one that was tested before use, `publish.publish`
writes files and commits them by a manifest, and `Catalogue` finds and fetches them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftmill.store.catalogue import Catalogue

__all__ = ["Catalogue"]


def __getattr__(name: str) -> Any:
    # Whoever imports one module of this package does not pay for all that the catalogue needs.
    if name == "Catalogue":
        from draftmill.store.catalogue import Catalogue

        return Catalogue
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
