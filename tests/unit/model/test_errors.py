"""All errors of the server are in one module."""

import pickle

import tailrace.server  # noqa: F401
from tailrace.model import errors


def every_error(shape: type[errors.TailraceError]) -> set[type[errors.TailraceError]]:
    return {shape}.union(*map(every_error, shape.__subclasses__()))


def test_every_error_can_be_imported_from_the_one_place() -> None:
    raised_by_the_server = {
        shape for shape in every_error(errors.TailraceError) if shape.__module__.startswith("tailrace.model.")
    }
    assert len(raised_by_the_server) > 70
    assert {getattr(errors, shape.__name__, None) for shape in raised_by_the_server} == raised_by_the_server


def test_an_error_is_pickled_with_all_that_it_carries() -> None:
    error = pickle.loads(pickle.dumps(errors.OffsetOutOfRangeError("it is below the start", 3, 9)))  # noqa: S301
    assert isinstance(error, errors.OffsetOutOfRangeError)
    assert (str(error), error.start, error.end) == ("it is below the start", 3, 9)
