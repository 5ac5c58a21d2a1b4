"""Makes `docs/reference/policy.md` of the policy that `tests/security/policy.py` holds.

    python -m tools.render_policy

`tests/security/test_policy.py` fails when the page is not what this makes.
"""

from collections.abc import Iterable
from pathlib import Path

from tests.security.policy import HTTP, KAFKA, PRINCIPALS, SQL, Rule, SqlRule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "policy.md"

_HEAD = """# Who may do what

<!-- Made by tools/render_policy.py of tests/security/policy.py. -->

What each API of Kafka, each endpoint of HTTP and each statement of SQL needs, on a server with
`authentication = "required"`. Without it everybody may do everything. A test tries every row with every principal on a real
server.

The columns are six principals who ask for something of a tenant `acme`: one without credentials, one with a wrong password, a
**reader** who was granted to read what begins with `acme`, a **stranger** who was granted everything on what begins with
`other`, an **owner** who was granted everything on what begins with `acme`, and an **administrator**, who is a member of the
role `admin`. Members of `admin` need no grant, and rows do not say so.

What is refused is refused by its name, whether it exists or not: with 401 or 403 over HTTP, and over Kafka's protocol with one
of the codes 29 (topic), 30 (group), 31 (cluster), 53 (transactional id) and 58 (authentication), or by closing the connection
of who has not authenticated. Lists leave out what may not be seen.

A route runs with the rights of the user who made it. When that user may no longer `select` from the table or `publish` to the
topic, the changes of the table wait from that moment on, `SHOW ROUTES` says why, and they are routed when the right is granted
again or the route is dropped.
"""


def rendered() -> str:
    """Return the page."""
    return "\n".join(
        (
            _HEAD,
            "## Kafka",
            "",
            *_table("API", ((f"`{name}`", rule) for name, rule in KAFKA.items())),
            "",
            "## HTTP",
            "",
            *_table("Endpoint", ((f"`{name}`", rule) for name, rule in HTTP.items())),
            "",
            "## SQL",
            "",
            *_table("Statement, such as", ((f"`{_escaped(rule.text)}`", rule) for rule in SQL)),
            "",
        )
    )


def _table(what: str, rows: Iterable[tuple[str, Rule | SqlRule]]) -> Iterable[str]:
    yield f"| {what} | Needs | {' | '.join(PRINCIPALS)} |"
    yield f"|---|---|{':-:|' * len(PRINCIPALS)}"
    for name, rule in rows:
        signs = " | ".join("yes" if rule.allows(principal) else "" for principal in PRINCIPALS)
        yield f"| {name} | {rule.needs} | {signs} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(rendered())
