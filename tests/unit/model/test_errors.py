"""The tree of errors is one, though its families have modules of their own."""

from importlib import import_module
from pkgutil import iter_modules

from tailrace.model import errors


def test_every_error_of_every_family_can_be_imported_from_the_one_place() -> None:
    families = [import_module(f"{errors.__name__}.{each.name}") for each in iter_modules(errors.__path__)]
    defined = {
        name: shape
        for family in families
        for name, shape in vars(family).items()
        if isinstance(shape, type) and issubclass(shape, errors.TailraceError)
    }
    assert len(defined) > 70
    assert {name: getattr(errors, name, None) for name in defined} == defined
    assert set(errors.__all__) == {*defined, "Outcome"}
