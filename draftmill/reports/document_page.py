"""A document as a page of its own: every text escaped, plots inline, nothing from elsewhere."""

from draftmill.reports.document import Document
from draftmill.reports.template import render


def document_page(document: Document) -> str:
    """HTML, UTF-8."""
    return render("document.html", document=document)
