"""Real inputs of the DFlash tests."""

from pathlib import Path

import pytest

from tests.support.dflash_packages import real_draft


@pytest.fixture
def smollm2_dflash() -> Path:
    """The folder of a real small generation 1 draft (Hugging Face form); the test is skipped where it is not there."""
    folder = real_draft()
    if folder is None:
        pytest.skip("shared/data/smollm2-dflash is not here")
    return folder
