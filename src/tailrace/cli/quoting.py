"""Names as SQL takes them."""

import re

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quoted(name: str) -> str:
    """Every part in quotes: whatever it is, it is a name and nothing else."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def quoted_where_needed(name: str) -> str:
    """As a person would write it: `shop.orders`, `shop."my-orders"`."""
    return ".".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in name.split("."))
