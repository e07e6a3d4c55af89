"""A signature over files by their digests: a Sigstore bundle around an in-toto statement, as OMS has it.

Made and verified by the package `model-signing`, which is told the digests instead of hashing a folder: they are known
already, and the files may lie in a bucket. Forms: OMS v1.0 (ossf/model-signing-spec), DSSE, in-toto Statement v1 with
the predicate https://model_signing/signature/v1.0 (sigstore/model-transparency 1.1).
"""

import base64
import contextlib
import io
import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.outcome import Refusal, Refused
from draftmill.signing.keys import key_id, key_id_of_private, public_half

PREDICATE = "https://model_signing/signature/v1.0"
LARGEST = 4 << 20
_METHOD = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}


@dataclass(frozen=True)
class Bundle:
    """key: as `key_id` gives it, None where an older tool named none. digests: path -> sha256 in hex. Nothing of it is
    to be believed before `signed_digests` said so."""

    key: str | None
    digests: dict[str, str]


def sign_digests(name: str, digests: Mapping[str, str], ignored: Iterable[str], private_key: Path) -> bytes:
    """The bundle. name: of the model, for people; digests: path -> sha256 in hex; ignored: paths that may lie beside
    the files and are not covered; a folder stands for all in it. Raises BadConfiguration for a bad key."""
    key_id_of_private(private_key)
    from model_signing import signing

    config = signing.Config().use_elliptic_key_signer(private_key=private_key)
    config.set_hashing_config(_stated(name, digests, ignored))
    with tempfile.TemporaryDirectory(prefix="draftmill-sign-") as place:
        config.sign(place, Path(place) / "model.sig")
        return (Path(place) / "model.sig").read_bytes()


def read_bundle(data: bytes, where: str) -> Bundle:
    """What it says. Raises Refused("signature.unreadable"), or "signature.method" for digests that are not sha256 of
    whole files."""
    if len(data) > LARGEST:
        raise Refused(_unreadable(where, f"{len(data)} bytes"))
    try:
        value = json.loads(data)
        material, envelope = value["verificationMaterial"], value["dsseEnvelope"]
        statement = json.loads(base64.b64decode(envelope["payload"], validate=True))
        predicate = statement["predicate"]
        kind, method = statement["predicateType"], predicate["serialization"]["method"]
        resources = [(str(each["name"]), each["algorithm"], str(each["digest"])) for each in predicate["resources"]]
        key = material["publicKey"].get("hint")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(_unreadable(where, f"{type(error).__name__}: {str(error)[:80]}")) from None
    digests = {name: digest for name, _, digest in resources}
    if kind != PREDICATE or len(digests) != len(resources):
        raise Refused(_unreadable(where, kind if kind != PREDICATE else "a name twice"))
    if method != "files" or any(algorithm != "sha256" for _, algorithm, _ in resources):
        algorithms = sorted({str(algorithm) for _, algorithm, _ in resources})
        sentence = "The signature is over other digests than the manifest's; sign with sha256 over whole files."
        raise Refused(Refusal("signature.method", where, [method, *algorithms], ["files", "sha256"], sentence))
    return Bundle(key if isinstance(key, str) and key else None, digests)


def signed_digests(data: bytes, public_key: Path, where: str) -> dict[str, str]:
    """path -> sha256 in hex, each signed by this key. where: of the bundle, for people.

    Raises Refused: what `read_bundle` raises, "signature.other_key", "signature.invalid"; BadConfiguration for a bad
    key file.
    """
    ours = key_id(public_key)
    bundle = read_bundle(data, where)
    if bundle.key not in (None, ours):
        raise Refused(other_key(where, [bundle.key], ours))
    from model_signing import verifying

    config = verifying.Config().use_elliptic_key_verifier(public_key=public_key)
    config.set_hashing_config(_stated("", bundle.digests, ()))
    with tempfile.NamedTemporaryFile(prefix="draftmill-verify-", suffix=".sig") as file:
        file.write(data)
        file.flush()
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # of an older tool's bundle it prints a warning
                config.verify(Path(file.name).parent, Path(file.name))
        except Exception as error:  # ValueError, cryptography's InvalidSignature, pydantic's, KeyError
            raise Refused(
                Refusal(
                    "signature.invalid",
                    where,
                    f"{type(error).__name__}: {str(error)[:120]}".rstrip(": "),
                    f"a signature by the key {ours[:16]}",
                    "The signature is not one by this key over what it says: it was forged or damaged. Believe nothing "
                    "in this folder; fetch it again, and ask who publishes it.",
                )
            ) from None
    return bundle.digests


def is_signed_by(data: bytes, private_key: Path) -> bool:
    """Whether it is a valid signature by this key. Raises BadConfiguration for a bad key file."""
    with tempfile.NamedTemporaryFile(prefix="draftmill-public-", suffix=".pem") as file:
        file.write(public_half(private_key))
        file.flush()
        try:
            signed_digests(data, Path(file.name), "")
        except Refused:
            return False
    return True


def other_key(where: str, measured: list[str | None], expected: str) -> Refusal:
    return Refusal(
        "signature.other_key",
        where,
        [key[:16] for key in measured if key],
        expected[:16],
        "It is signed, but not by this key. Ask the publisher which key is theirs, since keys are replaced now and "
        "then, and give that one as --public-key.",
    )


def _unreadable(where: str, measured: str) -> Refusal:
    sentence = "This is no OMS signature by a key; fetch it again, or have the publication signed again."
    return Refusal("signature.unreadable", where, measured, PREDICATE, sentence)


def _stated(name: str, digests: Mapping[str, str], ignored: Iterable[str]) -> Any:
    """A hashing configuration that hashes nothing, and answers with these digests."""
    from model_signing import hashing, manifest
    from model_signing._hashing.hashing import Digest  # what items hold; the package has no public name for it

    method = manifest.SerializationType.from_args({**_METHOD, "ignore_paths": sorted(ignored)})
    items = [method.new_item(path, Digest("sha256", bytes.fromhex(each))) for path, each in digests.items()]

    class Stated(hashing.Config):
        def hash(self, model_path: Any, *, files_to_hash: Any = None) -> Any:
            return manifest.Manifest(name, items, method)

    return Stated()
