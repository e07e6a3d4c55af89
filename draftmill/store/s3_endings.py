"""What boto3 raises, as endings of ours: one sentence each, which never quotes a server or a library.

Their texts are kept out on purpose: a credential with a line break in it, for one, comes back inside http.client's
complaint about the header.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError

from draftmill.outcome import BadConfiguration, InputOutput, MillError, NotPermitted, Temporary, Unavailable

EXISTS = frozenset({"PreconditionFailed", "ConditionalRequestPrecondition", "NotModified", "304", "412"})
CONFLICT = frozenset({"ConditionalRequestConflict", "OperationAborted", "409"})
ABSENT = frozenset({"NoSuchKey", "NotFound", "404"})

_CUT = (boto.ConnectionClosedError, boto.ReadTimeoutError, boto.ResponseStreamingError, boto.IncompleteReadError)
_UNREACHABLE = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ConnectionError)
_NO_CREDENTIALS = (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError)
_DAMAGED = frozenset({"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch"})


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def named(error: ClientError, ask: Callable[[], object]) -> ClientError:
    """The answer to a HEAD that was turned away has no body and so no code: what the server says to `ask`, a like
    request with a body, where that is turned away too."""
    if status_of(error) in (400, 401, 403):
        try:
            ask()
        except ClientError as same:
            return same
    return error


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turns what boto3 raises inside into a MillError about `where`."""
    try:
        yield
    except ClientError as error:
        raise _answered(where, code_of(error), status_of(error)) from None
    except (BotoCoreError, ValueError) as error:
        raise _unanswered(where, error) from None


def _answered(where: str, code: str, status: int) -> MillError:
    said = f"{where}: the server answers {status} {code}"
    match code:
        case "NoSuchBucket":
            return no_bucket(where)
        case "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken":
            return NotPermitted(
                f"{said}; the credentials are wrong or have expired. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
                "(with a session AWS_SESSION_TOKEN too), or the credentials file, to ones that this server knows, and "
                "repeat.",
                code="store.not_permitted",
                where=where,
            )
        case "RequestTimeTooSkewed":
            return BadConfiguration(
                f"{said}; this machine's clock and the server's differ. Set the wrong one and repeat.",
                code="store.clock",
                where=where,
            )
        case "PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException" | "301":
            return BadConfiguration(
                f"{said}; the bucket is in another region, set AWS_DEFAULT_REGION.", code="store.region", where=where
            )
        case "QuotaExceeded" | "EntityTooLarge" | "InsufficientStorage" | "XMinioStorageFull":
            return InputOutput(f"{said}; make room there and repeat.", code="store.full", where=where)
    if status in (401, 403):
        return NotPermitted(
            f"{said}; the credentials do not allow this. Ask for reading, writing, listing and deleting there.",
            code="store.not_permitted",
            where=where,
        )
    if status == 429 or (status >= 500 and status != 501) or code in _DAMAGED | CONFLICT | {"RequestTimeout"}:
        return Temporary(
            f"{said}, also when asked again; repeat later. If it stays so, look at the server: many answer like this "
            "when their disk is full.",
            code="store.temporary",
            where=where,
        )
    if status == 404:
        return InputOutput(f"{said}; publish it again.", code="store.missing", where=where)
    return Unavailable(
        f"{said}, which the store does not know how to use; run `draftmill store check` on it.",
        code="store.unexpected_answer",
        where=where,
    )


def no_bucket(where: str) -> BadConfiguration:
    return BadConfiguration(
        f"{where}: there is no such bucket; create it, or mend the address in --store.",
        code="store.no_bucket",
        where=where,
    )


def _unanswered(where: str, error: Exception) -> MillError:
    kind = type(error).__name__
    if isinstance(error, boto.SSLError):
        return BadConfiguration(
            f"{where}: no trusted TLS connection ({kind}); set AWS_CA_BUNDLE to the server's CA.",
            code="store.tls",
            where=where,
        )
    if isinstance(error, _NO_CREDENTIALS):
        return BadConfiguration(
            f"{where}: no credentials ({kind}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or name a credentials file.",
            code="store.no_credentials",
            where=where,
        )
    if isinstance(error, _UNREACHABLE):
        return Unavailable(
            f"{where}: no connection ({kind}); check that the server runs and that the endpoint is right.",
            code="store.unreachable",
            where=where,
        )
    if isinstance(error, _CUT) or (
        isinstance(error, boto.HTTPClientError) and not isinstance(error.kwargs.get("error"), ValueError)
    ):
        return Temporary(
            f"{where}: the connection broke in the middle ({kind}), also when tried again; nothing was "
            "half-written. Repeat.",
            code="store.cut",
            where=where,
        )
    return BadConfiguration(
        f"{where}: the request could not be made ({kind}); check the address and that the credentials hold no "
        "blanks or line breaks.",
        code="store.request",
        where=where,
    )
