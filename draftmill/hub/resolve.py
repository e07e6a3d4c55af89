"""From a reference to a pinned listing, whatever the source."""

import time

from draftmill.hub.listing import Listing, Selection
from draftmill.hub.local import list_folder, list_mirror
from draftmill.hub.patience import Pause
from draftmill.hub.ref import Ref
from draftmill.hub.remote import list_hub
from draftmill.hub.source import Folder, Hub, Source
from draftmill.outcome import BadConfiguration


def resolve(ref: Ref, source: Source, selection: Selection, *, pause: Pause = time.sleep) -> Listing:
    """What a reference means now, to the byte.

    Raises Refused, NotPermitted, Temporary, Unavailable, BadConfiguration.
    """
    if isinstance(source, Folder):
        return list_folder(source.root, selection)
    if ref.repo is None:
        raise BadConfiguration(f"{ref} is a folder; its source is the folder itself.", code="hub.source")
    if isinstance(source, Hub):
        return list_hub(ref, source, selection, pause)
    return list_mirror(ref, source.root, selection)
