"""Everything an author publishes: what a hub lists page by page, or a mirror's folders."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from draftmill.hub.answers import Asked, judge, transport
from draftmill.hub.card import card_facts
from draftmill.hub.listing import Selection
from draftmill.hub.local import list_mirror
from draftmill.hub.patience import Retry
from draftmill.hub.ref import Ref, is_repo_name
from draftmill.hub.remote import api_of, unusable
from draftmill.hub.source import Folder, Hub, Source
from draftmill.outcome import BadConfiguration, Refused

FIELDS = ("sha", "cardData", "siblings", "gated", "disabled")
"""What is asked for; everything else costs the hub time."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A repository in a list: its commit now, its card's licence, and its files by name (sizes are asked for one by
    one). gated: False, "auto" or "manual"."""

    repo: str
    commit: str
    licence: str | None
    base_models: tuple[str, ...]
    files: tuple[str, ...]
    gated: bool | str = False


def list_author(author: str, source: Source) -> Iterator[Listed]:
    """Raises NotPermitted, Temporary, Unavailable, BadConfiguration, also while the pages are read."""
    if isinstance(source, Hub):
        yield from _list_hub(author, source)
    elif isinstance(source, Folder):
        raise BadConfiguration("A model's own folder lists no authors; name a hub or a mirror.", code="hub.source")
    else:
        yield from _list_mirror(author, source.root)


def _list_hub(author: str, hub: Hub) -> Iterator[Listed]:
    from huggingface_hub.errors import HfHubHTTPError

    asked = Asked(hub, author, "models")
    try:
        with transport(asked):
            for info in api_of(hub).list_models(author=author, expand=list(FIELDS)):
                if info.disabled:
                    continue
                licence, base_models = card_facts(info.card_data)
                files = tuple(sorted(file.rfilename for file in info.siblings or ()))
                if not is_repo_name(info.id) or not isinstance(info.sha, str):
                    raise unusable(asked, "a model in it has no name or no commit")
                yield Listed(info.id, info.sha, licence, base_models, files, info.gated or False)
    except HfHubHTTPError as error:
        raise _outcome(judge(asked, error.response.status_code, error.response.headers)) from None
    except Retry as retry:
        raise retry.outcome from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise unusable(asked, "its JSON is no list of models") from None


def _outcome(error: Exception) -> Exception:
    return error.outcome if isinstance(error, Retry) else error


def _list_mirror(author: str, root: Path) -> Iterator[Listed]:
    folder = root / author
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        repo = f"{author}/{path.name}"
        if not path.is_dir() or not is_repo_name(repo):
            continue
        # The commit of a mirror without pins is that of what is taken, so it has to be what a run would take.
        selection: Selection = "package" if any(path.glob("*.q4nx")) else "model"
        with suppress(Refused):  # no model
            listing = list_mirror(Ref(repo), root, selection)
            files = tuple(sorted({*(file.path for file in listing.files), *listing.not_taken}))
            yield Listed(repo, listing.commit, listing.licence, listing.base_models, files, listing.gated)
