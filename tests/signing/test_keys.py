"""Which key files sign and verify, and that none of their content is told."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from draftmill.outcome import BadConfiguration
from draftmill.signing.keys import key_id, key_id_of_private
from tests.support.keys import key_pair


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("curve", ["prime256v1", "secp384r1", "secp521r1"])
def test_a_key_is_known_by_the_digest_of_its_public_half_as_openssl_writes_it(tmp_path: Path, curve: str) -> None:
    pair = key_pair(tmp_path, curve=curve)
    expected = hashlib.sha256(pair.public.read_bytes()).hexdigest()
    assert key_id(pair.public) == key_id_of_private(pair.private) == expected


def test_other_curves_kinds_and_encrypted_keys_are_refused_without_a_word_of_their_content(tmp_path: Path) -> None:
    koblitz = key_pair(tmp_path, "koblitz", "secp256k1")
    plain = key_pair(tmp_path, "plain")
    openssl("genpkey", "-algorithm", "ed25519", "-out", str(tmp_path / "ed.key"))
    openssl("ec", "-in", str(plain.private), "-aes256", "-passout", "pass:word", "-out", str(tmp_path / "locked.key"))
    (tmp_path / "text.key").write_text("s3cret")
    for path, word in (
        (koblitz.private, "secp256k1"),
        (tmp_path / "ed.key", "Ed25519"),
        (tmp_path / "locked.key", "encrypted"),
        (tmp_path / "text.key", "no private key"),
        (plain.public, "no private key"),
        (tmp_path / "absent.key", "cannot be read"),
    ):
        with pytest.raises(BadConfiguration) as error:
            key_id_of_private(path)
        assert (error.value.code, word in str(error.value)) == ("signing.key", True), path
        if path.exists():
            assert not any(line in str(error.value) for line in path.read_text().splitlines() if line)
    with pytest.raises(BadConfiguration, match="no public key"):
        key_id(plain.private)
