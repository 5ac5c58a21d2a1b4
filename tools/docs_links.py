"""Makes links of the pages to files outside of `docs/` lead to the repository, where the site does not have them."""

import re
from pathlib import Path, PurePosixPath
from typing import Any

_LINK = re.compile(r"\]\(((?:\.\./)+)([^)#\s]+)((?:#[^)]*)?)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return the page with such links rewritten. MkDocs calls this for every page."""
    folder = PurePosixPath(page.file.src_uri).parent
    root = Path(config.config_file_path).parent

    def rewritten(link: re.Match[str]) -> str:
        ups, path, anchor = link.groups()
        levels = ups.count("../")
        if levels <= len(folder.parts):
            return link.group(0)
        if not (root / path).exists():
            # Left as it is, so that the build says that the link leads nowhere.
            return link.group(0)
        return f"]({config.repo_url}/blob/main/{path}{anchor})"

    return _LINK.sub(rewritten, markdown)
