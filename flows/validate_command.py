"""What `draftmill validate --publish` hands a package to: the flow, on the Prefect server at hand."""

from pathlib import Path
from typing import Any

from flows.commands import ensure_images
from flows.display import shown
from flows.order import Order
from flows.signing import use_key


def validate_package(
    ref: str,
    *,
    hub: str,
    store: str,
    work: Path,
    runner: str,
    sign_key: Path | None = None,
    run: dict[str, Any] | None = None,
    target: Path | None = None,
) -> dict[str, Any]:
    """{"gate": the content of gate.json, "published": path -> place}. run, target: a MeasurementRequest as JSON and the
    folder of the target on which the package is run. Raises MillError when something broke."""
    from flows.prefect_server import prefect_server

    use_key(sign_key)
    order = Order.model_validate(
        {"ref": ref, "hub": hub, "store": store, "work": work, "runner": runner, "run": run, "run_target": target}
    )
    if order.runner == "docker":
        with shown(False) as display:
            jobs: list[tuple[str, dict[str, Any]]] = [("gate", {})]
            jobs += [("measure_acceptance", {"request": run})] if run else []
            ensure_images(jobs, display)
    with prefect_server(order.work):
        from flows.validate_package import validate_package as flow

        with shown(False):
            state: Any = flow(order.model_dump(mode="json"), return_state=True)
            ending = state.result()
    places = ending.places | ({"manifest.json": ending.manifest_at} if ending.manifest_at else {})
    return {"gate": ending.gate, "published": places}
