"""Real inputs of the DFlash tests."""

from pathlib import Path

import pytest

from tests.support.dflash_packages import real_draft_or_skip


@pytest.fixture(scope="session")
def smollm2_dflash() -> Path:
    """The folder of a real small generation 1 draft (Hugging Face form); the test is skipped where it is not there."""
    return real_draft_or_skip()
