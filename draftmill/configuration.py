"""Where the mill's own settings lie (`config/` of a checkout, or the copy that an installed package carries), and where
it looks and publishes while nobody says otherwise."""

from pathlib import Path

from draftmill.outcome import BadConfiguration

PUBLIC_HUB = "https://huggingface.co"
DEFAULT_STORE = "./mill-store"
_PACKAGE = Path(__file__).resolve().parent


def config_path(name: str) -> Path:
    """The file or folder `name` of config/. Raises BadConfiguration where it is nowhere."""
    places = (_PACKAGE.parent / "config" / name, _PACKAGE / "config" / name)
    for place in places:
        if place.exists():
            return place
    raise BadConfiguration(f"config/{name} is neither beside the package nor in it: name one yourself.", where=name)
