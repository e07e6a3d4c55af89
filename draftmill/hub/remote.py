"""A hub over HTTP: its listing through huggingface_hub, and a file's bytes from any offset.

huggingface_hub's own download is not used because it does not compare what came with the digest that was listed
(huggingface_hub #3643); its client, headers and addresses are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from draftmill import __version__
from draftmill.hub.answers import Asked, judge, transport
from draftmill.hub.card import card_facts
from draftmill.hub.listing import ListedFile, Listing, Selection, select
from draftmill.hub.patience import Pause, Retry, persist
from draftmill.hub.ref import Ref, is_repo_name
from draftmill.hub.source import Hub
from draftmill.outcome import Refusal, Refused, Temporary, Unavailable

LISTING_STALL_S = 60.0
CHUNK = 1 << 18


def list_hub(ref: Ref, hub: Hub, selection: Selection, pause: Pause) -> Listing:
    """The repository at the commit that the revision names now.

    Raises Refused, NotPermitted, Temporary, Unavailable, BadConfiguration.
    """
    assert ref.repo is not None  # noqa: S101 - the caller tells names and folders apart
    asked = Asked(hub, ref.repo, ref.revision)

    def ask() -> Any:
        from huggingface_hub.errors import HfHubHTTPError

        with transport(asked):
            try:
                return api_of(hub).model_info(
                    asked.repo, revision=ref.revision, files_metadata=True, timeout=hub.stall_s or LISTING_STALL_S
                )
            except HfHubHTTPError as error:
                answer = error.response
                raise judge(asked, answer.status_code, answer.headers) from None
            except (ValueError, KeyError, TypeError, AttributeError):
                raise unusable(asked, "its JSON is not a model's") from None

    info = persist(ask, pause)
    if not is_repo_name(info.id):
        raise unusable(asked, "it names no repository")
    siblings = {file.rfilename: file for file in info.siblings or ()}
    taken, aside = select(siblings, selection, asked.where)
    licence, base_models = card_facts(info.card_data)
    try:
        return Listing(
            repo=info.id,
            requested_revision=ref.revision,
            commit=info.sha,
            source="hub",
            licence=licence,
            base_models=base_models,
            gated=info.gated or False,
            files=tuple(_listed(siblings[path]) for path in taken),
            not_taken=tuple(aside),
        )
    except ValueError:
        raise unusable(asked, "a size, digest or commit is missing or malformed") from None


def _listed(sibling: Any) -> ListedFile:
    size, lfs = sibling.size, sibling.lfs
    if lfs and size is not None and lfs.size != size:
        sentence = f"The hub gives two sizes for {sibling.rfilename}. Tell its operator."
        raise Refused(Refusal("hub.two_sizes", sibling.rfilename, size, lfs.size, sentence))
    return ListedFile(path=sibling.rfilename, size=size, sha256=lfs.sha256 if lfs else None, blob_id=sibling.blob_id)


def api_of(hub: Hub) -> Any:
    from huggingface_hub import HfApi

    _be_quiet()
    token = hub.token or False
    return HfApi(endpoint=hub.endpoint, token=token, library_name="draftmill", library_version=__version__)


def _be_quiet() -> None:
    """No telemetry in the user agent, whatever the environment said when huggingface_hub was imported; and none of its
    warnings, since they repeat a server's text (X-HF-Warning), which may be our token."""
    from huggingface_hub import constants
    from huggingface_hub.utils import logging

    constants.HF_HUB_DISABLE_TELEMETRY = True
    logging.set_verbosity_error()


def unusable(asked: Asked, why: str) -> Unavailable:
    sentence = f"{asked.hub.endpoint} answers for {asked.where}, but {why}. Check HF_ENDPOINT."
    return Unavailable(sentence, code="hub.answer", where=asked.where)


class HubFiles:
    """Opens the files of one listing at a hub, each at the pinned commit."""

    def __init__(self, hub: Hub, listing: Listing) -> None:
        from huggingface_hub import constants
        from huggingface_hub.utils import build_hf_headers

        _be_quiet()
        if listing.repo is None:
            raise ValueError("a listing of a hub names its repository")
        self._hub, self._repo, self._commit = hub, listing.repo, listing.commit
        self._headers = build_hf_headers(
            token=hub.token or False, library_name="draftmill", library_version=__version__
        )
        self._stall_s = hub.stall_s or float(constants.HF_HUB_DOWNLOAD_TIMEOUT)

    @contextmanager
    def open_at(self, file: ListedFile, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """(where the bytes really start, the bytes): a server may ignore the offset and start at 0.
        The client drops the token when it follows a redirect to another origin.

        Raises Retry, Refused, NotPermitted, Unavailable; also while the bytes are read.
        """
        from huggingface_hub import get_session, hf_hub_url

        url = hf_hub_url(self._repo, file.path, revision=self._commit, endpoint=self._hub.endpoint)
        # Compressed on the way, a body has neither the size nor the offsets that the listing speaks of.
        headers = self._headers | {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        asked = Asked(self._hub, self._repo, self._commit, file.path)
        with (
            transport(asked),
            get_session().stream("GET", url, headers=headers, timeout=self._stall_s) as answer,
        ):
            if answer.status_code not in (200, 206):
                raise judge(asked, answer.status_code, answer.headers)
            start = offset if answer.status_code == 206 else 0
            if start and not answer.headers.get("content-range", "").startswith(f"bytes {offset}-"):
                sentence = f"{self._hub.endpoint} sends another part of {asked.where} than was asked for."
                raise Retry(Temporary(sentence, code="hub.range", where=asked.where), start_over=True)
            yield start, answer.iter_bytes(CHUNK)
