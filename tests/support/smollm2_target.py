"""SmolLM2-135M-Instruct as a Hugging Face folder: the target that the real small draft was trained for."""

import subprocess
import sys
from pathlib import Path

import pytest

from draftmill.kernel_lock import hold
from tests.support.dflash_packages import real_draft_or_skip
from tests.support.inputs import smollm2_gguf


def smollm2_target(factory: pytest.TempPathFactory) -> Path:
    """Made of the GGUF that the tests have, once for all processes of a run; its script checks the digest. A test is
    skipped where the draft, which brings the script, is not there."""
    draft = real_draft_or_skip()
    base = factory.getbasetemp()
    base = base.parent if "popen-" in base.name else base
    folder = base / "smollm2-target"
    with hold(base / "smollm2-target.lock", "SmolLM2's folder", run="tests", wait_s=300):
        if not (folder / "model.safetensors").is_file():
            command = [sys.executable, draft / "smollm2_hf.py", smollm2_gguf(), folder]
            subprocess.run(command, check=True, capture_output=True)
    return folder
