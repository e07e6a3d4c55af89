"""A store in an S3 bucket: boto3, signature v4, path style, objects created with If-None-Match.

Every object carries its sha256 as metadata `sha256` (lower case; read without regard to case, since some servers
change it). Nothing is overwritten except by `replace`.
"""

import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from draftmill.outcome import BadConfiguration, InputOutput
from draftmill.progress import Progress, silent
from draftmill.store.bodies import Body, size_of, verified
from draftmill.store.endings import changed, missing
from draftmill.store.interface import Check, Creation, Entry, Head, Promises
from draftmill.store.keys import check_key, check_prefix, content_type
from draftmill.store.multipart import MIB, part_size_for, parts_of, upload
from draftmill.store.reading import verified as verified_pieces
from draftmill.store.s3_endings import ABSENT, CONFLICT, EXISTS, code_of, explained, named, no_bucket, status_of
from draftmill.store.unfinished import noted

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

SHA256 = "sha256"
PART_SIZE = 16 * MIB
PIECE = MIB // 4
CONFLICT_TRIES = 6
ABANDONED = timedelta(days=1)
LONGEST_URL_S = 7 * 24 * 3600  # of signature version 4
IF_ABSENT: dict[str, Any] = {"IfNoneMatch": "*"}


class S3Store:
    """A `Store` below s3://bucket/prefix. `part_size` in bytes, 5 MiB at least; bigger files go up in parts."""

    def __init__(self, client: "S3Client", bucket: str, prefix: str = "", part_size: int = PART_SIZE) -> None:
        self.client, self.bucket, self.prefix, self.part_size = client, bucket, prefix, part_size
        self._root = f"{check_key(prefix)}/" if prefix else ""
        self.name = f"s3://{'/'.join(filter(None, [bucket, self.prefix]))} at {client.meta.endpoint_url}"
        self.promises = Promises()
        self._notes: Path | None = None
        self._gives_ranges: bool | None = None

    def __repr__(self) -> str:
        return f"S3Store({self.name!r})"

    def where(self, key: str) -> str:
        place = self.place(key)
        return f"s3://{place['Bucket']}/{place['Key']}"

    def place(self, key: str) -> dict[str, Any]:
        return {"Bucket": self.bucket, "Key": check_key(self._root + check_key(key))}

    def note_uploads(self, folder: Path) -> None:
        self._notes = folder

    def create(self, key: str, body: Body, sha256: str, progress: Progress = silent) -> Creation:
        where = self.where(key)
        try:
            size = size_of(body)
            if isinstance(body, bytes) or size <= self.part_size:
                data = b"".join(verified(body, sha256))
                with explained(where):
                    etag = self._put_if_absent(key, data, sha256)
                progress(key, size, size)
            else:
                etag = self._upload_if_absent(key, body, size, sha256, progress)
        except OSError as error:
            raise InputOutput(
                f"{error.filename}: {error.strerror}; run the job that made it again.", code="store.io", where=where
            ) from error
        if etag is not None:
            return Creation(True, Head(key, size, sha256, etag))
        existing = self.head(key)
        if existing is None:
            raise changed(where)
        return Creation(False, existing)

    def _put_if_absent(self, key: str, data: bytes, sha256: str) -> str | None:
        """The new ETag, or None when the key is taken."""
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        for attempt in range(CONFLICT_TRIES):
            try:
                answer = self.client.put_object(
                    **self.place(key),
                    Body=data,
                    Metadata={SHA256: sha256},
                    ChecksumSHA256=checksum,
                    ContentType=content_type(key),
                    **IF_ABSENT,
                )
                return answer["ETag"]
            except ClientError as error:
                if _exists(error):
                    return None
                if not _conflict(error) or attempt == CONFLICT_TRIES - 1:
                    raise
                time.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable")

    def _upload_if_absent(self, key: str, body: Any, size: int, sha256: str, progress: Progress) -> str | None:
        # A look first spares the upload; where completion is not conditional, a look just before it is what is left.
        def is_absent() -> bool:
            return self.head(key) is None

        if not is_absent():
            return None
        conditional = self.promises.conditional_complete
        place, part_size = self.place(key), part_size_for(size, self.part_size)
        with (
            explained(self.where(key)),
            noted(self._notes, self.client.meta.endpoint_url, place, sha256, part_size) as note,
        ):
            try:
                return upload(
                    self.client,
                    place,
                    body,
                    sha256,
                    size=size,
                    metadata={SHA256: sha256},
                    part_size=part_size,
                    conditions=IF_ABSENT if conditional else {},
                    may_complete=None if conditional else is_absent,
                    note=note,
                    progress=progress,
                )
            except ClientError as error:
                # A completion whose answer was lost is asked for again, and there is no such upload any more.
                if _exists(error) or (code_of(error) == "NoSuchUpload" and not is_absent()):
                    return None
                raise

    def replace(self, key: str, data: bytes, if_match: str | None) -> str:
        where = self.where(key)
        if not self.promises.conditional_replace:
            existing = self.head(key)
            if (existing.etag if existing else None) != if_match:
                raise changed(where)
        sha256 = hashlib.sha256(data).hexdigest()
        condition: dict[str, Any] = IF_ABSENT if if_match is None else {"IfMatch": if_match}
        with explained(where):
            try:
                answer = self.client.put_object(
                    **self.place(key),
                    Body=data,
                    Metadata={SHA256: sha256},
                    ContentType=content_type(key),
                    **condition,
                )
                return answer["ETag"]
            except ClientError as error:
                if _exists(error) or _conflict(error) or code_of(error) in ABSENT:
                    raise changed(where) from None
                raise

    def head(self, key: str) -> Head | None:
        with explained(self.where(key)):
            try:
                answer = self.client.head_object(**self.place(key))
            except ClientError as error:
                if code_of(error) in ABSENT:
                    return None
                raise named(error, lambda: self.client.get_object(**self.place(key), Range="bytes=0-0")) from None
        return Head(key, answer["ContentLength"], _recorded(answer), answer["ETag"])

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        where = self.where(key)
        whole = start == 0 and stop is None
        if stop is not None and stop <= start:
            return
        wanted: dict[str, Any] = {} if whole else {"Range": f"bytes={start}-{'' if stop is None else stop - 1}"}
        with explained(where):
            try:
                answer = self.client.get_object(**self.place(key), **wanted)
            except ClientError as error:
                if code_of(error) in ABSENT:
                    raise missing(where) from None
                if status_of(error) == 416:
                    return
                raise
            pieces: Iterator[bytes] = answer["Body"].iter_chunks(PIECE)
            sha256 = _recorded(answer)
            if whole:
                yield from verified_pieces(pieces, sha256, where) if sha256 else pieces
            elif answer.get("ContentRange", "").startswith(f"bytes {start}-"):
                yield from pieces
            else:
                yield from _cut_out(pieces, start, stop)

    def gives_ranges(self, key: str) -> bool:
        if self._gives_ranges is None:
            try:
                answer = self.client.get_object(**self.place(key), Range="bytes=0-0")
            except (ClientError, BotoCoreError):
                return True  # the read itself says what is wrong
            answer["Body"].close()
            self._gives_ranges = "ContentRange" in answer
        return self._gives_ranges

    def url(self, key: str, expires_s: int) -> tuple[str, int | None]:
        where = self.where(key)
        if not 0 < expires_s <= LONGEST_URL_S:
            raise BadConfiguration(
                f"A presigned address lasts 1 to {LONGEST_URL_S} seconds, not {expires_s}.",
                code="store.url_expiry",
                where=where,
            )
        if self.head(key) is None:
            raise missing(where)
        with explained(where):
            return self.client.generate_presigned_url(
                "get_object", Params=self.place(key), ExpiresIn=expires_s
            ), expires_s

    def entries(self, prefix: str) -> Iterator[Entry]:
        check_prefix(prefix)
        found = []
        with explained(f"{self.name}, listing of {prefix!r}"):
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self._root + prefix):
                found += [
                    Entry(item["Key"].removeprefix(self._root), item["Size"], item["LastModified"].timestamp())
                    for item in page.get("Contents", [])
                ]
        # SeaweedFS lists folder by folder: a/x before a-b.
        yield from sorted(found, key=lambda entry: entry.key)

    def delete(self, key: str) -> None:
        with explained(self.where(key)):
            try:
                self.client.delete_object(**self.place(key))
            except ClientError as error:
                if code_of(error) not in ABSENT:
                    raise

    def sweep(self, *, dry: bool = False) -> list[str]:
        found: list[str] = []
        # Best effort: not every server lists uploads, and what stays costs room but is never an object.
        with suppress(ClientError, BotoCoreError):
            before = datetime.now(UTC) - ABANDONED
            pages = self.client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self._root):
                for item in page.get("Uploads", []):
                    place: dict[str, Any] = {"Bucket": self.bucket, "Key": item["Key"]}
                    # A big file on a slow line takes days, and each part of it is a sign of life.
                    if item["Initiated"] < before and all(
                        part["LastModified"] < before
                        for part in parts_of(self.client, place, item["UploadId"]).values()
                    ):
                        if not dry:
                            self.client.abort_multipart_upload(**place, UploadId=item["UploadId"])
                        found.append(f"{item['Key'].removeprefix(self._root)} (upload {item['UploadId'][:8]})")
        return found

    def identity(self) -> list[str]:
        with explained(self.name):
            try:
                answer = self.client.head_bucket(Bucket=self.bucket)
            except ClientError as error:
                if status_of(error) == 404:
                    raise no_bucket(self.name) from None
                raise named(
                    error, lambda: self.client.list_objects_v2(Bucket=self.bucket, Prefix=self._root, MaxKeys=1)
                ) from None
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        return [str(self.client.meta.endpoint_url), self.bucket, headers.get("server", "")]

    def own_checks(self, folder: str) -> Iterator[Check]:
        from draftmill.store.probe_s3 import checks

        return checks(self, folder)


def _recorded(answer: Any) -> str | None:
    return {name.lower(): value for name, value in answer["Metadata"].items()}.get(SHA256)


def _exists(error: ClientError) -> bool:
    return code_of(error) in EXISTS or status_of(error) in (304, 412)


def _conflict(error: ClientError) -> bool:
    return code_of(error) in CONFLICT or status_of(error) == 409


def _cut_out(pieces: Iterator[bytes], start: int, stop: int | None) -> Iterator[bytes]:
    """A range out of a whole body, for servers that ignore ranges."""
    at = 0
    for piece in pieces:
        cut = piece[max(start - at, 0) : None if stop is None else max(stop - at, 0)]
        at += len(piece)
        if cut:
            yield cut
        if stop is not None and at >= stop:
            return
