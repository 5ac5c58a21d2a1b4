"""That Litestar still chooses its plugins where `LitestarApp` says which. If not, look for the new place, or for a setting."""

from litestar import Litestar

from tailrace.http.endpoints import LitestarApp


def loads_pydantic(app: Litestar) -> bool:
    return any("pydantic" in type(plugin).__module__ for plugin in app.plugins)


def test_litestar_chooses_its_plugins_where_we_do() -> None:
    assert "_get_default_plugins" in vars(Litestar)
    assert loads_pydantic(Litestar([])), "it is not loaded unasked any more: `LitestarApp` can go, and this file"


def test_nothing_is_loaded_for_classes_that_are_not_ours() -> None:
    assert not loads_pydantic(LitestarApp([]))
