"""A page as a browser takes it apart: what is open, what is text, and whether anything comes from elsewhere."""

from html.parser import HTMLParser

_VOID = {"meta", "br", "input"}


class Page(HTMLParser):
    """tags: how often each was opened. words: all text outside style and script, runs of white space as one space."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: dict[str, int] = {}
        self.attributes: list[tuple[str, str, str | None]] = []
        self._texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    @property
    def words(self) -> str:
        return " ".join(" ".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self._texts.append(data)
