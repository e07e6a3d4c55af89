"""What a hub's answer or silence means, and what to do about it: the one place that maps HTTP to outcomes.

Sentences are our own. A server's text is never passed on: it may hold anything, our own token included.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from draftmill.hub.patience import Retry
from draftmill.hub.source import Hub
from draftmill.outcome import BadConfiguration, MillError, NotPermitted, Refusal, Refused, Temporary, Unavailable

RETRIED = frozenset({408, 425, 429})


@dataclass(frozen=True)
class Asked:
    """What a request was about. path: a file, or None for the listing."""

    hub: Hub
    repo: str
    revision: str
    path: str | None = None

    @property
    def where(self) -> str:
        return f"{self.repo}@{self.revision}" + (f"/{self.path}" if self.path else "")

    @property
    def page(self) -> str:
        return self.hub.page(self.repo)


def judge(asked: Asked, status: int, headers: Mapping[str, str]) -> Exception:
    """The exception for an HTTP status of 300 or more. headers: a mapping that finds names in lower case.
    The X-Error-Code values are the Hub's, as huggingface_hub reads them."""
    where, endpoint, code = asked.where, asked.hub.endpoint, headers.get("x-error-code", "")
    if status in RETRIED or status >= 500:
        busy = f"{endpoint} answered {status} for {where}, again and again. Run it once more later."
        return Retry(Temporary(busy, code="hub.busy", where=where), after=_asked_wait(headers))
    if status == 416:
        sentence = f"{endpoint} does not continue {where}. Run it once more later."
        return Retry(Temporary(sentence, code="hub.range", where=where), start_over=True)
    if status in (401, 403):
        return _not_permitted(asked, status, code)
    if status == 404:
        return _missing(asked, code)
    sentence = f"{endpoint} answered {status} for {where}, which is not an answer of a hub. Check HF_ENDPOINT."
    return Unavailable(sentence, code="hub.answer", where=where)


def _not_permitted(asked: Asked, status: int, code: str) -> MillError:
    token = asked.hub.token
    if code == "GatedRepo":
        how = "and accept its terms, then run again" if token else "and accept its terms, then set HF_TOKEN"
        sentence = f"{asked.where} is gated ({status}). Ask for access at {asked.page} {how}."
        if token:
            sentence += " A fine-grained token also needs the right to read gated repositories."
        return NotPermitted(sentence, code="hub.gated", where=asked.where)
    held = "the token that was given may not read it" if token else "no token was given (HF_TOKEN)"
    sentence = f"{asked.where} does not exist or is private ({status}), and {held}. Look at {asked.page}."
    return NotPermitted(sentence, code="hub.not_permitted", where=asked.where)


def _missing(asked: Asked, code: str) -> Refused:
    repo, revision = asked.repo, asked.revision
    if code == "RevisionNotFound":
        sentence = f"{repo} has no revision {revision}. Its branches and tags are at {asked.page}."
        return Refused(Refusal("hub.revision_missing", asked.where, revision, "a branch, tag or commit", sentence))
    if asked.path and code != "RepoNotFound":
        sentence = f"{repo} at {revision} has no file {asked.path}, though it was listed. Resolve the reference again."
        return Refused(Refusal("hub.file_missing", asked.where, 404, asked.path, sentence))
    sentence = f"{asked.hub.endpoint} has no repository {repo} (or no revision {revision}). Check the spelling."
    return Refused(Refusal("hub.repo_missing", asked.where, 404, repo, sentence))


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks for: Retry-After (RFC 9110, seconds or date), or the RateLimit header's reset."""
    from huggingface_hub.utils import parse_ratelimit_headers

    asked = headers.get("retry-after", "").strip()
    if asked.isdigit():
        return float(asked)
    if asked:
        try:
            when = parsedate_to_datetime(asked)
        except ValueError:
            return None
        return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    limit = parse_ratelimit_headers(headers)
    return float(limit.reset_in_seconds) if limit and limit.remaining == 0 else None


@contextmanager
def transport(asked: Asked) -> Iterator[None]:
    """Maps what the HTTP client raises: resets, timeouts and broken bodies to Retry, the rest to its outcome."""
    import httpx2
    from huggingface_hub.errors import OfflineModeIsEnabled

    endpoint, where = asked.hub.endpoint, asked.where
    try:
        yield
    except OfflineModeIsEnabled:
        sentence = "HF_HUB_OFFLINE is set. Unset it, or name a mirror folder."
        raise BadConfiguration(sentence, code="hub.offline") from None
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
        why = str(error) or type(error).__name__
        sentence = f"{endpoint} cannot be reached ({why}). Check the network, HF_ENDPOINT and the proxy."
        raise Retry(Unavailable(sentence, code="hub.unreachable", where=where), attempts=3) from None
    except httpx2.TimeoutException:
        sentence = f"{endpoint} stalled while it sent {where}. Run it once more: it continues where it stopped."
        raise Retry(Temporary(sentence, code="hub.stalled", where=where)) from None
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        kind = type(error).__name__
        sentence = f"The connection broke while {endpoint} sent {where} ({kind}). Run it once more."
        raise Retry(Temporary(sentence, code="hub.broken", where=where)) from None
    except (httpx2.TooManyRedirects, httpx2.InvalidURL) as error:
        sentence = f"{endpoint} redirects {where} to nowhere ({type(error).__name__}). Check HF_ENDPOINT."
        raise Unavailable(sentence, code="hub.answer", where=where) from None
