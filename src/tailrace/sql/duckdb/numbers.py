"""Numbers: arithmetic, rounding and mathematical functions."""

from collections.abc import Callable, Sequence

from tailrace.sql.analysis.tree import Call
from tailrace.sql.duckdb.templates import Template, expanded, is_loose


def of_numerics(operator: str, name: str) -> Callable[[Sequence[str], Call], str]:
    """Return a template that uses DuckDB's decimals where the digits are known, and functions for loose numerics elsewhere."""

    def render(arguments: Sequence[str], call: Call) -> str:
        loose_result = is_loose(call.type) if call.type.name == "numeric" else any(is_loose(one.type) for one in call.arguments)
        if not loose_result and not any(is_loose(one.type) for one in call.arguments):
            text = operator.format(*arguments)
            return text if call.type.name != "numeric" else f"CAST({text} AS DECIMAL({call.type.precision}, {call.type.scale}))"
        texts = [
            one if is_loose(argument.type) or argument.type.name != "numeric" else f"CAST({one} AS VARCHAR)"
            for one, argument in zip(arguments, call.arguments, strict=True)
        ]
        result = f"{name}({', '.join(texts)})"
        return (
            result
            if is_loose(call.type) or call.type.name != "numeric"
            else f"CAST({result} AS DECIMAL({call.type.precision}, {call.type.scale}))"
        )

    return render


NUMBERS: dict[str, Template] = expanded(
    {
        "{int} + {int}": "({0} + {1})",
        "{int} - {int}": "({0} - {1})",
        "{int} * {int}": "({0} * {1})",
        "{int} / {int}": "int_div({0}, {1})",
        "{int} % {int}": "int_mod({0}, {1})",
        "- {int}": "(-{0})",
        "+ {int}": "{0}",
        "abs({int})": "abs({0})",
        "mod({int}, {int})": "int_mod({0}, {1})",
        "{float} + {float}": "float_add({0}, {1})",
        "{float} - {float}": "float_sub({0}, {1})",
        "{float} * {float}": "float_mul({0}, {1})",
        "{float} / {float}": "float_div({0}, {1})",
        "- {float}": "(-{0})",
        "abs({float})": "abs({0})",
        "numeric + numeric": of_numerics("({0} + {1})", "numeric_add"),
        "numeric - numeric": of_numerics("({0} - {1})", "numeric_sub"),
        "numeric * numeric": of_numerics("({0} * {1})", "numeric_mul"),
        "numeric / numeric": of_numerics("numeric_div({0}, {1})", "numeric_div"),
        "numeric % numeric": of_numerics("decimal_mod({0}, {1})", "numeric_mod"),
        "mod(numeric, numeric)": of_numerics("decimal_mod({0}, {1})", "numeric_mod"),
        "- numeric": of_numerics("(-{0})", "numeric_neg"),
        "abs(numeric)": of_numerics("abs({0})", "numeric_abs"),
        "round(numeric, int4)": of_numerics("round({0}, {1})", "numeric_round"),
    }
)
