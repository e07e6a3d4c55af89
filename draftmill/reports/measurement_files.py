"""A measurement's report as files: the record with its figures, the same for readers, and the plots."""

from pathlib import Path

from draftmill.measurement.record import Accepted, Speed
from draftmill.reports.document_page import document_page
from draftmill.reports.document_text import document_text
from draftmill.reports.measurement_document import measurement_document
from draftmill.reports.measurement_json import report_json
from draftmill.whole_file import write_whole

JSON, TEXT, PAGE = "report.json", "report.md", "report.html"


def write_report(folder: Path, record: Speed | Accepted) -> tuple[Path, ...]:
    """Writes report.json, report.md, report.html and the plots that report.md shows into a folder, made where it is
    not; each takes its name when it is whole, the record first: the others can be made from it again.

    Returns the paths. Raises OSError, and Refused (draftmill.measurement.speed_results) before anything is written.
    """
    document = measurement_document(record)
    content = {JSON: report_json(record)}
    content |= {f"{plot.name}.svg": plot.svg + "\n" for plot in document.plots}
    content |= {TEXT: document_text(document), PAGE: document_page(document)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        write_whole(folder / name, text)
    return tuple(folder / name for name in content)
