"""A file uploaded in parts: parallel, hashed on the way, completed only when the whole is what it should be.

What was cut off is gone on with: parts that the server has are compared with the file and not sent again.
"""

import base64
import hashlib
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from draftmill.progress import Progress
from draftmill.store.bodies import verified
from draftmill.store.s3_endings import status_of
from draftmill.store.unfinished import Note

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MIB = 1 << 20
MOST_PARTS = 10_000  # S3's limit
THREADS = 4


def part_size_for(size: int, least: int) -> int:
    """Bytes in a part: `least`, or more (whole MiB) where S3's number of parts would not suffice."""
    return max(least, -(-size // MOST_PARTS // MIB) * MIB)


def upload(
    client: "S3Client",
    place: dict[str, Any],
    body: Path,
    sha256: str,
    *,
    size: int,
    metadata: dict[str, str],
    part_size: int,
    conditions: dict[str, Any],
    may_complete: Callable[[], bool] | None = None,
    note: Note,
    progress: Progress,
) -> str | None:
    """Uploads `body` to place = {"Bucket", "Key"} and gives the ETag. At most THREADS + 1 parts are in memory.

    Each part carries a CRC32 that the server compares. `conditions` go to the completion ({"IfNoneMatch": "*"} where
    the server honours it); `may_complete` is asked just before it, and None returned when it says no. note: of the
    upload that is gone on with. No object appears when something goes wrong; the upload is aborted, but where the next
    try may go on with it (a kill, a cut connection, a server in trouble) and a note says so, its parts stay.
    Raises what boto3 raises, and InputOutput("store.source_differs").
    """
    upload_id, there = note.upload_id, {}
    if upload_id:
        there = parts_of(client, place, upload_id)
    if not upload_id or not there:
        upload_id = client.create_multipart_upload(**place, Metadata=metadata, ChecksumAlgorithm="CRC32")["UploadId"]
        note.write(upload_id)
    try:
        pieces = verified(body, sha256, part_size)
        parts: list[Any] = _send(client, {**place, "UploadId": upload_id}, pieces, there, size, progress)
        if may_complete and not may_complete():
            _abort(client, place, upload_id, note)
            return None
        answer = client.complete_multipart_upload(
            **place, UploadId=upload_id, MultipartUpload={"Parts": parts}, **conditions
        )
    except BaseException as error:
        if not note.is_kept or not _may_go_on(error):
            _abort(client, place, upload_id, note)
        raise
    note.remove()
    return answer["ETag"]


def parts_of(client: Any, place: dict[str, Any], upload_id: str) -> dict[int, Any]:
    """The parts that the server has of an upload, by number; none where it does not know it any more."""
    found: dict[int, Any] = {}
    # What cannot be listed is sent again.
    with suppress(ClientError, BotoCoreError):
        for page in client.get_paginator("list_parts").paginate(**place, UploadId=upload_id):
            found |= {part["PartNumber"]: part for part in page.get("Parts", [])}
    return found


def _may_go_on(error: BaseException) -> bool:
    if isinstance(error, ClientError):
        return status_of(error) >= 500
    return isinstance(error, BotoCoreError) or not isinstance(error, Exception)


def _abort(client: Any, place: dict[str, Any], upload_id: str, note: Note) -> None:
    # What led here is the thing to tell; an upload that could not be aborted is swept a day later.
    with suppress(Exception):
        client.abort_multipart_upload(**place, UploadId=upload_id)
        note.remove()


def _send(
    client: Any,
    upload: dict[str, Any],
    pieces: Iterator[bytes],
    there: Mapping[int, Any],
    size: int,
    progress: Progress,
) -> list[dict[str, Any]]:
    done = 0
    parts: list[dict[str, Any]] = []
    pending: deque[tuple[int, Future[Any], int]] = deque()

    def collect() -> None:
        number, future, length = pending.popleft()
        answer = future.result()
        checksum = {"ChecksumCRC32": answer["ChecksumCRC32"]} if "ChecksumCRC32" in answer else {}
        count({"PartNumber": number, "ETag": answer["ETag"], **checksum}, length)

    def count(part: dict[str, Any], length: int) -> None:
        nonlocal done
        parts.append(part)
        done += length
        progress(upload["Key"], done, size)

    with ThreadPoolExecutor(THREADS) as pool:
        try:
            for number, piece in enumerate(pieces, start=1):
                crc32 = base64.b64encode(zlib.crc32(piece).to_bytes(4, "big")).decode()
                known = there.get(number)
                if known and _is(known, piece, crc32):
                    # SeaweedFS lists no checksums of parts, and wants them at the completion.
                    count({"PartNumber": number, "ETag": known["ETag"], "ChecksumCRC32": crc32}, len(piece))
                    continue
                sent = pool.submit(client.upload_part, **upload, PartNumber=number, Body=piece, ChecksumCRC32=crc32)
                pending.append((number, sent, len(piece)))
                if len(pending) == THREADS:
                    collect()
            while pending:
                collect()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return sorted(parts, key=lambda part: part["PartNumber"])


def _is(part: Any, piece: bytes, crc32: str) -> bool:
    """Whether a part that the server lists has these bytes. Its ETag is an MD5, unless it encrypts."""
    if part["Size"] != len(piece):
        return False
    if "ChecksumCRC32" in part and part["ChecksumCRC32"] != crc32:
        return False
    return part["ETag"].strip('"') == hashlib.md5(piece, usedforsecurity=False).hexdigest()
