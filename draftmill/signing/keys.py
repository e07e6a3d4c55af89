"""Key files: elliptic-curve keys as PEM, the kind that OMS signs and verifies with (P-256, P-384, P-521).

No key's content, and of a private one not even its digest, is in any message.
"""

import hashlib
from pathlib import Path
from typing import Any

from draftmill.outcome import BadConfiguration

CURVES = ("secp256r1", "secp384r1", "secp521r1")
HOW = (
    "Make a pair with `openssl ecparam -name prime256v1 -genkey -noout -out sign.key` and "
    "`openssl ec -in sign.key -pubout -out sign.pub`."
)


def key_id(public_key: Path) -> str:
    """The name that a bundle gives a key: the sha256 of its public part as PEM (SubjectPublicKeyInfo), in hex.

    Raises BadConfiguration for a file that holds no public key of those curves.
    """

    def load(data: bytes) -> Any:
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        return load_pem_public_key(data)

    return hashlib.sha256(_pem(_load(public_key, "public", load), public_key, "public")).hexdigest()


def public_half(private_key: Path) -> bytes:
    """The public key of a private one, as PEM. Raises BadConfiguration likewise, and for an encrypted key."""

    def load(data: bytes) -> Any:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        return load_pem_private_key(data, None).public_key()

    return _pem(_load(private_key, "private", load), private_key, "private")


def key_id_of_private(private_key: Path) -> str:
    """`key_id` of its public half. Raises what that raises."""
    return hashlib.sha256(public_half(private_key)).hexdigest()


def need_package() -> None:
    """Raises BadConfiguration where the package that signs is not installed."""
    try:
        import model_signing  # noqa: F401
    except ModuleNotFoundError as error:
        raise BadConfiguration(
            f"Signatures need {error.name}: pip install 'draftmill[signing]'.", code="signing.package"
        ) from None


def _load(path: Path, kind: str, load: Any) -> Any:
    need_package()
    try:
        return load(path.read_bytes())
    except OSError as error:
        raise BadConfiguration(
            f"The {kind} key {path} cannot be read: {error.strerror}. {HOW}", code="signing.key", where=str(path)
        ) from None
    except TypeError:
        raise BadConfiguration(
            f"The {kind} key {path} is encrypted, and nobody is there to type its password. Give it decrypted, as a "
            "secret file that only the publisher reads.",
            code="signing.key",
            where=str(path),
        ) from None
    except Exception:  # cryptography raises several kinds, some of which show what they read
        raise BadConfiguration(f"{path} is no {kind} key as PEM. {HOW}", code="signing.key", where=str(path)) from None


def _pem(public: Any, path: Path, kind: str) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    curve = getattr(getattr(public, "curve", None), "name", type(public).__name__)
    if curve not in CURVES:
        raise BadConfiguration(
            f"The {kind} key {path} is of {curve}; OMS signs with {', '.join(CURVES)}. {HOW}",
            code="signing.key",
            where=str(path),
        )
    pem: bytes = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem
