"""A measurement as an order asks for it. What it leaves open is the worker's own, as in every order (`defaults`)."""

from typing import Any

from draftmill.configuration import config_path
from draftmill.measurement.device.profiles import CPU, find_device
from draftmill.measurement.prompts import interleaved, load_prompts
from draftmill.measurement.request import MeasurementRequest, asked_prompts, new_run, read_request
from flows.defaults import devices_path


def whole_request(asked: dict[str, Any]) -> MeasurementRequest:
    """device: a profile, or the name of one in the worker's devices file (DRAFTMILL_DEVICES, else config/devices.yaml),
    `cpu` unless given. prompts: the mill's own. run: a new name.

    Raises Refused("device.unknown"), BadConfiguration where a file or the request cannot be read.
    """
    device = asked.get("device", CPU.name)
    if isinstance(device, str):
        device = find_device(devices_path(), device).model_dump(mode="json")
    whole = {"run": new_run(), **asked, "device": device}
    if "prompts" not in whole:
        own = interleaved(load_prompts(config_path("prompts")))
        whole["prompts"] = [prompt.model_dump() for prompt in asked_prompts(own.prompts)]
    return read_request(whole)
