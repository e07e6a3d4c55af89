"""A Hugging Face model from a folder: no code of it runs, nothing is unpickled, fetched or invented."""

from pathlib import Path
from typing import Any

from draftmill.intake.bounded_json import read_object
from draftmill.intake.config import check_remote_code
from draftmill.intake.findings import Findings
from draftmill.outcome import BadConfiguration, Refusal, Refused

CONFIG, CONFIG_LIMIT = "config.json", 1 << 20


def load_model(folder: Path, *, device: str, dtype: str) -> Any:
    """A causal language model on a device; both by torch's names.

    Raises Refused (target.config_missing, unreadable, weights_missing, architecture, what `check_remote_code` refuses),
    BadConfiguration (target.not_installed, device).
    """
    _require_safe(folder)
    torch, transformers = libraries()
    try:
        with _quiet(transformers):
            found = _loaded(transformers, folder, getattr(torch, dtype))
    except Exception as error:  # transformers and safetensors raise what they like on a spoiled folder
        raise Refused(
            Refusal(
                "target.unreadable", str(folder), str(error).split("\n")[0][:300],
                "a causal language model that transformers loads from safetensors",
                "transformers cannot load the target; take it from its repository again.",
            )
        ) from error  # fmt: skip
    model, loaded = found
    if missing := sorted(loaded["missing_keys"]):
        # transformers fills them with random numbers, and goes on.
        raise Refused(
            Refusal(
                "target.weights_missing", str(folder), missing[:8], "every weight that config.json asks for",
                f"{len(missing)} weights are not in the folder; take the target from its repository again.",
            )
        )  # fmt: skip
    named = list(getattr(model.config, "architectures", None) or [type(model).__name__])
    if type(model).__name__ not in named:
        raise Refused(
            Refusal(
                "target.architecture", str(folder), named[:4], type(model).__name__,
                "config.json names another architecture than transformers runs it as; take config.json from the "
                "target's repository.",
            )
        )  # fmt: skip
    return _on(model, device)


def _require_safe(folder: Path) -> None:
    if not (folder / CONFIG).is_file():
        raise Refused(
            Refusal(
                "target.config_missing", str(folder), "no config.json", "a Hugging Face folder",
                "A target is a folder with config.json, safetensors and a tokenizer; give that folder.",
            )
        )  # fmt: skip
    findings = Findings()
    check_remote_code(read_object(folder / CONFIG, CONFIG, CONFIG_LIMIT), CONFIG, findings)
    findings.raise_if_any()


def libraries() -> tuple[Any, Any]:
    """torch and transformers. Raises BadConfiguration where they are not installed."""
    try:
        import torch
        import transformers
    except ModuleNotFoundError as error:
        raise BadConfiguration(
            f"A Hugging Face target needs torch and transformers ({error}): pip install 'draftmill[target]'.",
            code="target.not_installed",
        ) from None
    return torch, transformers


def _loaded(transformers: Any, folder: Path, dtype: Any) -> Any:
    """The model and what of it was missing; with eager attention where the model has no other."""
    options: dict[str, Any] = {
        "dtype": dtype,
        "use_safetensors": True,
        "trust_remote_code": False,
        "local_files_only": True,
        "output_loading_info": True,
    }
    load = transformers.AutoModelForCausalLM.from_pretrained
    try:
        return load(str(folder), attn_implementation="sdpa", **options)
    except ValueError as error:
        if "scaled_dot_product_attention" not in str(error):
            raise
    return load(str(folder), attn_implementation="eager", **options)


def _on(model: Any, device: str) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise BadConfiguration(
            f"torch cannot use the device {device!r}: {str(error).splitlines()[0]}; name another, or install the torch "
            "that is built for it.",
            code="target.device",
        ) from error


class _quiet:
    """transformers draws a bar while it loads, in pipes too."""

    def __init__(self, transformers: Any) -> None:
        self._logging = transformers.utils.logging

    def __enter__(self) -> None:
        self._shown = self._logging.is_progress_bar_enabled()
        self._level = self._logging.get_verbosity()
        self._logging.disable_progress_bar()
        self._logging.set_verbosity_error()

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._logging.enable_progress_bar()
        self._logging.set_verbosity(self._level)
