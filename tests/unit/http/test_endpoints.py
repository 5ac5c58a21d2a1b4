"""Litestar still chooses its plugins in the method that `LitestarApp` overrides. If not, find the new place, or a setting."""

from litestar import Litestar

from tailrace.http.endpoints import LitestarApp


def loads_pydantic(app: Litestar) -> bool:
    return any("pydantic" in type(plugin).__module__ for plugin in app.plugins)


def test_litestar_chooses_its_plugins_in_the_method_that_we_override() -> None:
    assert "_get_default_plugins" in vars(Litestar)
    assert loads_pydantic(Litestar([])), "it is not loaded unasked any more: `LitestarApp` can go, and this file"


def test_no_plugin_is_loaded_for_pydantic() -> None:
    assert not loads_pydantic(LitestarApp([]))
