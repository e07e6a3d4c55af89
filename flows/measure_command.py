"""What `draftmill measure --publish` hands a pair to: the flow, on the Prefect server at hand."""

from pathlib import Path
from typing import Any

from flows.commands import ensure_images
from flows.display import shown


def measure_pair(
    request: dict[str, Any], *, target: Path, draft: Path, store: str, work: Path, runner: str, wait_s: float
) -> dict[str, Any]:
    """{"report": the bytes of report.json, "places": name -> where it is}. Raises MillError when something broke."""
    from flows.prefect_server import prefect_server

    if runner == "docker":
        with shown(False) as display:
            ensure_images([(f"measure_{request['what']}", {"request": request})], display)
    with prefect_server(work):
        from flows.measure_pair import MeasureOrder
        from flows.measure_pair import measure_pair as flow

        order = MeasureOrder.model_validate(
            {
                "request": request,
                "target": target,
                "draft": draft,
                "store": store,
                "work": work,
                "runner": runner,
                "wait_s": wait_s,
            }
        )
        with shown(False):
            state: Any = flow(order.model_dump(mode="json"), return_state=True)
            ending = state.result()
    return {"report": ending.report, "places": ending.places}
