"""What only an S3 server can get wrong: asked with plain requests, around the store's own safeguards."""

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from draftmill.store.interface import Check
from draftmill.store.probe import finding
from draftmill.store.s3_endings import code_of, explained, status_of

if TYPE_CHECKING:
    from draftmill.store.s3 import S3Store

_WRONG_SHA256 = base64.b64encode(bytes(32)).decode()


def checks(store: "S3Store", folder: str) -> Iterator[Check]:
    with explained(store.name):
        yield _conditional_complete(store, f"{folder}/complete")
        yield _conditional_replace(store, f"{folder}/replace")
        yield _checksum(store, f"{folder}/checksum")
        yield _metadata(store, f"{folder}/metadata")
        yield _range(store, f"{folder}/range")
        yield _key_beside_prefix(store, f"{folder}/beside")


def _refusal(call: Any, **arguments: Any) -> str | None:
    """What the server said when it turned the request away, or None when it took it.

    Only a client error counts: a 5xx other than "not implemented" says nothing about what the server would do.
    """
    try:
        call(**arguments)
    except ClientError as error:
        if status_of(error) < 500 or status_of(error) == 501:
            return f"{status_of(error)} {code_of(error)}"
        raise
    return None


def _conditional_complete(store: "S3Store", key: str) -> Check:
    client, place = store.client, store.place(key)
    client.put_object(**place, Body=b"first")
    upload_id = client.create_multipart_upload(**place)["UploadId"]
    part = client.upload_part(**place, UploadId=upload_id, PartNumber=1, Body=b"second")
    said = _refusal(
        client.complete_multipart_upload,
        **place,
        UploadId=upload_id,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
        IfNoneMatch="*",
    )
    if said:
        _refusal(client.abort_multipart_upload, **place, UploadId=upload_id)
    kept = client.get_object(**place)["Body"].read() == b"first"
    held = said is not None and kept and _status(said) in (304, 412)
    return finding("conditional_complete", held, said or "200, and the object was overwritten")


def _conditional_replace(store: "S3Store", key: str) -> Check:
    client, place = store.client, store.place(key)
    first = client.put_object(**place, Body=b"first")["ETag"]
    fresh = _refusal(client.put_object, **place, Body=b"second", IfMatch=first)
    stale = _refusal(client.put_object, **place, Body=b"third", IfMatch=first)
    held = fresh is None and stale is not None and _status(stale) == 412
    return finding("conditional_replace", held, f"right etag: {fresh or '200'}; old etag: {stale or '200'}")


def _checksum(store: "S3Store", key: str) -> Check:
    place = store.place(key)
    said = _refusal(store.client.put_object, **place, Body=b"some bytes", ChecksumSHA256=_WRONG_SHA256)
    return finding("checksum", said is not None and store.head(key) is None, said or "200, and the object was written")


def _metadata(store: "S3Store", key: str) -> Check:
    place = store.place(key)
    store.client.put_object(**place, Body=b"x", Metadata={"sha256": "ab"})
    back = store.client.head_object(**place)["Metadata"]
    if {name.lower(): value for name, value in back.items()} != {"sha256": "ab"}:
        return finding("metadata", False, f"{back!r:.100}")
    return finding("metadata_case", "sha256" in back, f"sha256 comes back as {next(iter(back))}")


def _range(store: "S3Store", key: str) -> Check:
    place = store.place(key)
    store.client.put_object(**place, Body=b"0123456789")
    try:
        answer = store.client.get_object(**place, Range="bytes=2-4")
    except ClientError as error:
        return finding("range", False, f"{status_of(error)} {code_of(error)}")
    body, status = answer["Body"].read(), answer["ResponseMetadata"]["HTTPStatusCode"]
    return finding("range", (status, body) == (206, b"234"), f"{status} with {len(body)} bytes, 3 asked")


def _key_beside_prefix(store: "S3Store", key: str) -> Check:
    said = []
    for name in (key, f"{key}/inside"):
        try:
            store.client.put_object(**store.place(name), Body=name.encode())
        except ClientError as error:
            said.append(f"{status_of(error)} {code_of(error)}")
    kept = not said and all(
        store.client.get_object(**store.place(name))["Body"].read() == name.encode() for name in (key, f"{key}/inside")
    )
    return finding("key_beside_prefix", kept, said[0] if said else "both" if kept else "one lost its bytes")


def _status(said: str) -> int:
    return int(said.split(" ", 1)[0])
