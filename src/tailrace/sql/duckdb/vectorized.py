"""How DuckDB calls functions of Python: a vector of values at a time. Nulls never reach them: their result is null."""

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import pyarrow as pa


class PythonFunction(NamedTuple):
    name: str
    call: Callable[..., object]
    arguments: Sequence[str]
    result: str


def vectorized(function: PythonFunction) -> Callable[..., pa.Array]:
    """Return a function of Arrow's columns."""
    call = function.call
    kind = _ARROW[function.result]

    def run(*columns: Any) -> pa.Array:
        values = [column.to_pylist() for column in columns]
        return pa.array([None if None in row else call(*row) for row in zip(*values, strict=True)], kind)

    # DuckDB counts the parameters of the function that it is given.
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(f"argument_{at}", Parameter.POSITIONAL_ONLY) for at in range(len(function.arguments))]
    )
    return run


_ARROW = {
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "BIGINT[]": pa.list_(pa.int64()),
    "VARCHAR[]": pa.list_(pa.string()),
    "VARCHAR[][]": pa.list_(pa.list_(pa.string())),
    "STRUCT(c1 VARCHAR, c2 VARCHAR)[]": pa.list_(pa.struct([("c1", pa.string()), ("c2", pa.string())])),
    "TIMESTAMP": pa.timestamp("us"),
}
