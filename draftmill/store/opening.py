"""From an address to a store: a folder, file:///folder, or s3://bucket/prefix."""

import configparser
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from draftmill.outcome import BadConfiguration, Refused
from draftmill.store.interface import Store
from draftmill.store.local import LocalStore

if TYPE_CHECKING:
    from draftmill.store.s3 import S3Store

CREDENTIALS_FILE = "DRAFTMILL_STORE_CREDENTIALS"
_OPTIONS = {"endpoint_url", "region"}


def open_store(url: str, credentials_file: Path | None = None) -> Store:
    """A store that was not probed yet (see `probe.ready_store`). Nothing is read or written, nobody is called.

    url: a path, file:///path, or s3://bucket[/prefix][?endpoint_url=URL&region=NAME]; without endpoint_url boto3's own
    AWS_ENDPOINT_URL_S3 and AWS_ENDPOINT_URL hold. credentials_file (or $DRAFTMILL_STORE_CREDENTIALS): a file in the
    form of ~/.aws/credentials, such as a mounted secret; else boto3 looks in its usual places.
    Raises BadConfiguration.
    """
    if "://" not in url:
        return LocalStore(Path(url).expanduser())
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        raise _bad("it cannot be read as an address") from None
    if "@" in parts.netloc:
        raise _bad("it holds a user name or password; credentials belong into the environment or a credentials file")
    if parts.scheme == "file":
        if parts.netloc or options:
            raise _bad("a file address has the form file:///folder")
        return LocalStore(Path(unquote(parts.path)))
    if parts.scheme != "s3" or not parts.netloc or parts.fragment:
        raise _bad("use a folder, file:///folder or s3://bucket/prefix")
    if unknown := sorted(set(options) - _OPTIONS):
        raise _bad(f"it has the unknown options {', '.join(unknown)}; known are endpoint_url and region")
    named = os.environ.get(CREDENTIALS_FILE)
    return _open_s3(parts.netloc, parts.path.strip("/"), options, credentials_file or (Path(named) if named else None))


def open_existing_store(url: str, credentials_file: Path | None = None) -> Store:
    """For who only reads: a folder that is not there is a mistyped address, and no empty store.

    Raises BadConfiguration (also "store.no_folder"), and what a folder that may not be read raises.
    """
    store = open_store(url, credentials_file)
    if isinstance(store, LocalStore) and not store.root.is_dir():
        found = "is no folder" if store.root.exists() else "does not exist"
        raise BadConfiguration(
            f"{store.name} {found}, so that there is no store to read; name yours with --store or DRAFTMILL_STORE. "
            "What publishes first makes the folder.",
            code="store.no_folder",
            where="--store",
        )
    return store


def _open_s3(bucket: str, prefix: str, options: dict[str, str], credentials_file: Path | None) -> "S3Store":
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    from draftmill.store.s3 import S3Store
    from draftmill.store.s3_endings import explained

    endpoint = options.get("endpoint_url")
    if endpoint and ("@" in endpoint or urlsplit(endpoint).scheme not in ("http", "https")):
        raise _bad("endpoint_url has the form http://host:port or https://host, without user name or password")
    keys: dict[str, Any] = _credentials(credentials_file) if credentials_file else {}
    with explained(f"s3://{bucket}"):
        try:
            session = boto3.Session(**keys)
            client = session.client(
                "s3",
                endpoint_url=endpoint,
                region_name=options.get("region") or session.region_name or "us-east-1",
                config=Config(
                    signature_version="s3v4",
                    s3={"addressing_style": "path"},
                    retries={"mode": "standard"},
                    connect_timeout=10,
                    read_timeout=60,
                    max_pool_connections=16,
                    # Whole reads are compared with our own sha256; rclone sends a whole object's checksum with a part.
                    response_checksum_validation="when_required",
                ),
            )
        except BotoCoreError as error:
            raise _bad(f"boto3 does not take its settings ({type(error).__name__})") from None
    try:
        return S3Store(client, bucket, prefix)
    except Refused:
        raise _bad("the part after the bucket is not made of plain names joined by /") from None


def _credentials(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    profile = os.environ.get("AWS_PROFILE", "default")
    try:
        parser.read_string(path.read_text())
        section = parser[profile]
        keys = {name: section[name] for name in ("aws_access_key_id", "aws_secret_access_key")}
        token = section.get("aws_session_token")
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError) as error:
        # The parser's own message quotes the line, which may be the secret.
        raise BadConfiguration(
            f"The credentials file {path} cannot be used ({type(error).__name__}); it needs a section [{profile}] with "
            "aws_access_key_id = ... and aws_secret_access_key = ..., and you need the right to read it.",
            code="store.credentials_file",
            where=str(path),
        ) from None
    return {**keys, "aws_session_token": token} if token else keys


def _bad(reason: str) -> BadConfiguration:
    return BadConfiguration(f"This store address cannot be used: {reason}.", code="store.address", where="--store")
