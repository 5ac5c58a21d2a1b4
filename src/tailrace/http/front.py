"""`GET /`: a page for whoever opens the server's address in a browser. It says that it works, and where to go on."""

from html import escape
from string import Template
from typing import Any

from litestar import Request, Response, get
from litestar.di import NamedDependency

from tailrace.broker.broker import Broker
from tailrace.http.description import described
from tailrace.http.health import Health, health_of
from tailrace.http.status import ServerStatus

HTML = "text/html"
_POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
_LINKS = {
    "/api/topics": "topics",
    "/api/tables": "tables",
    "/api/routes": "routes",
    "/api/groups": "consumer groups",
    "/api/queues": "queues",
    "/api/pipelines": "pipelines, and how they do",
    "/health": "is it up",
    "/metrics": "metrics for Prometheus",
    "/api/openapi.json": "all endpoints, as OpenAPI",
}
_PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tailrace</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }
h1 small { font-weight: normal; opacity: .6; }
pre { padding: .8rem 1rem; border: 1px solid #8884; border-radius: 6px; overflow-x: auto; }
td { padding: .1rem 1.5rem .1rem 0; }
</style>
<h1>Tailrace <small>$version</small></h1>
<p>$state</p>
<pre>tailrace sql --server $address</pre>
<table>$links</table>
</html>
""")


@get("/", opt=described(answer_types={HTML: str}))
async def front(
    request: Request[Any, Any, Any], broker: NamedDependency[Broker], status: NamedDependency[ServerStatus]
) -> Response[str]:
    """A page for people: that the server works, and where to go on."""
    health = health_of(broker, status)
    page = _PAGE.substitute(
        version=escape(health.version),
        state=escape(_in_words(health)),
        address=escape(str(request.base_url).rstrip("/")),
        links="".join(f'<tr><td><a href="{path}">{path}</a><td>{what}' for path, what in _LINKS.items()),
    )
    return Response(page, media_type=HTML, headers=_POLICY)


def _in_words(health: Health) -> str:
    if health.failure:
        return f"It has failed: {health.failure}"
    if health.status == "full":
        return "There is no room on its disk: records are refused until there is."
    return f"It works. Durability is {health.durability}; the next record gets cursor {health.end_cursor:,}."
