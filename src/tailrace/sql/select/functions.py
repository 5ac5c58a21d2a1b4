"""What a query may call and read in DuckDB: a list of functions, and the relations of the query; nothing else.

The check uses DuckDB's own parse of the text that it will run, so differences between the parsers can't be exploited. Excluded
are functions that access files, settings, the catalog or other queries, functions that wait, and functions that make large
values of small ones, because DuckDB's memory limit does not count what a single function call allocates.
"""

import json
from collections.abc import Collection, Iterator

from tailrace.model.errors import UnsupportedSqlError

_OPERATORS = "+ - * / // % ^ ** & | << >> ~ || @ ~~ !~~ ~~* !~~* ~~~ -> ->> @> <@ && ^@ !__postfix = != < <= > >="

_AGGREGATES = """
    any_value approx_count_distinct approx_quantile approx_top_k arg_max arg_min array_agg avg bit_and bit_or bit_xor bool_and
    bool_or corr count count_if count_star covar_pop covar_samp entropy favg first fsum histogram json_group_array
    json_group_object kurtosis last list listagg group_concat mad max max_by mean median min min_by mode product quantile
    quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
    skewness stddev stddev_pop stddev_samp string_agg sum var_pop var_samp variance
"""

_WINDOWS = "cume_dist dense_rank first_value fill lag last_value lead nth_value ntile percent_rank rank rank_dense row_number"

_NUMBERS = """
    abs acos acosh asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees even exp fdiv floor fmod gcd
    greatest isfinite isinf isnan lcm least ln log log10 log2 mod pi pow power radians random round round_even sign sin sinh
    sqrt tan tanh trunc width_bucket
"""

_TEXT = """
    ascii bin char_length character_length chr concat concat_ws contains damerau_levenshtein decode editdist3 encode ends_with
    from_base64 from_hex hamming hash hex ilike_escape instr jaccard jaro_similarity jaro_winkler_similarity lcase left length
    levenshtein like_escape lower ltrim md5 not_ilike_escape not_like_escape octet_length ord overlay position prefix
    regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace regexp_split_to_array
    replace reverse right rtrim sha1 sha256 split split_part starts_with str_split string_split string_split_regex
    string_to_array strip_accents strlen strpos substr substring suffix to_base64 to_hex translate trim ucase unhex unicode
    upper url_decode url_encode base64 bit_length nfc_normalize
"""

_TIMES = """
    age century current_date current_localtimestamp current_timestamp date_add date_diff date_part date_sub date_trunc datediff
    datepart datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era
    get_current_timestamp hour isodow isoyear julian last_day localtimestamp make_date make_time make_timestamp
    make_timestamp_ms make_timestamptz microsecond millennium millisecond minute month monthname now quarter second strftime
    strptime time_bucket timezone to_centuries to_days to_decades to_hours to_microseconds to_millennia to_milliseconds
    to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp try_strptime week
    weekday weekofyear year yearweek
"""

_JSON = """
    array_to_json from_json json json_array json_array_length json_contains json_exists json_extract json_extract_path
    json_extract_path_text json_extract_string json_keys json_merge_patch json_object json_quote json_structure
    json_transform json_type json_valid json_value row_to_json to_json
"""

_NESTED = """
    array_append array_cat array_concat array_contains array_distinct array_extract array_filter array_has array_has_all
    array_has_any array_indexof array_intersect array_length array_position array_prepend array_reverse array_slice array_sort
    array_to_string array_transform array_value cardinality element_at flatten len list_append list_avg list_concat
    list_contains list_count list_distinct list_extract list_filter list_has list_has_all list_has_any list_indexof
    list_intersect list_max list_median list_min list_position list_prepend list_reverse list_slice list_sort list_sum
    list_transform list_unique list_value list_zip map map_entries map_extract map_from_entries map_keys map_values row
    struct_extract struct_pack struct_keys unnest map_contains
"""

_OTHER = """
    coalesce constant_or_null error if ifnull nullif typeof pg_typeof uuid gen_random_uuid uuidv4 uuidv7 uuid_extract_timestamp
"""

ALLOWED = frozenset(
    name
    for names in (_OPERATORS, _AGGREGATES, _WINDOWS, _NUMBERS, _TEXT, _TIMES, _JSON, _NESTED, _OTHER)
    for name in names.split()
)
"""All functions that expressions may call."""

TABLE_FUNCTIONS = frozenset(("unnest", "generate_series", "json_each", "json_tree"))
"""All functions of DuckDB that FROM may use. They return rows one at a time, so the time limit applies to them."""


def check_calls(parsed: str, relations: Collection[str]) -> None:
    """Raise for the first function or relation that is not allowed. `parsed` is the output of DuckDB's `json_serialize_sql`."""
    tree = json.loads(parsed)
    if tree["error"]:
        raise UnsupportedSqlError(f"the query is not supported: {tree['error_message']}")
    nodes = list(_nodes(tree))
    ctes = {entry["key"].lower() for node in nodes for entry in _ctes(node)}
    in_from = {id(node["function"]) for node in nodes if node.get("type") == "TABLE_FUNCTION"}
    for node in nodes:
        if node.get("type") == "BASE_TABLE":
            _check_relation(node, ctes, relations)
        elif node.get("class") in ("FUNCTION", "WINDOW"):
            name = str(node["function_name"]).lower()
            if name not in (TABLE_FUNCTIONS if id(node) in in_from else ALLOWED):
                raise UnsupportedSqlError(
                    f"the function {name} is not supported; docs/reference/select.md lists those that are"
                )


def _check_relation(node: dict[str, object], ctes: Collection[str], relations: Collection[str]) -> None:
    name = str(node["table_name"])
    if node["schema_name"] or node["catalog_name"] or (name not in relations and name.lower() not in ctes):
        raise UnsupportedSqlError(f"there is no table or topic {name!r} that a query can read")


def _ctes(node: dict[str, object]) -> list[dict[str, str]]:
    ctes = node.get("cte_map")
    return ctes["map"] if isinstance(ctes, dict) else []


def _nodes(tree: object) -> Iterator[dict[str, object]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
