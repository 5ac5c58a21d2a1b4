-- JSON. Whether a value that DuckDB has extracted may differ from what PostgreSQL extracts: all but strings, integers and booleans.
CREATE MACRO is_doubtful_text(t) AS
    (ascii(t) BETWEEN 45 AND 57 AND (contains(t, '.') OR contains(t, 'e') OR contains(t, 'E')))
    OR ascii(t) IN (91, 123);
CREATE MACRO is_doubtful_json(t) AS
    (ascii(t) BETWEEN 45 AND 57 AND (contains(t, '.') OR contains(t, 'e') OR contains(t, 'E')))
    OR (ascii(t) IN (91, 123) AND regexp_matches(t, '[0-9][.eE]'));
-- Whether the number of a key is written as DuckDB prints it. That is certain only if the key occurs once.
CREATE MACRO is_written(t, k, v) AS
    NOT contains(v, 'e') AND v <> '-0.0' AND NOT contains(t, '\u') AND ascii(v) BETWEEN 45 AND 57 AND len(string_split(t, k)) = 2
    AND (contains(t, k || ': ' || v || ',') OR contains(t, k || ': ' || v || '}') OR contains(t, k || ':' || v || ',')
        OR contains(t, k || ':' || v || '}'));
-- Whether a text may be JSON only to DuckDB, which allows trailing commas, NaN and Infinity.
CREATE MACRO is_lenient_json(t) AS
    regexp_matches(t, ',\s*[\]}]')
    OR (t ILIKE '%nan%' AND regexp_matches(t, '(?i)(^|[:,\[])\s*-?nan'))
    OR (t ILIKE '%inf%' AND regexp_matches(t, '(?i)(^|[:,\[])\s*-?inf'));
-- A number that is written plainly, or null: then the general cast decides.
CREATE MACRO plain_int8(t) AS CASE
    WHEN contains(t, '.') OR contains(t, 'e') OR contains(t, 'E') OR contains(t, '_') OR contains(t, 'x') OR contains(t, 'X') THEN NULL
    ELSE TRY_CAST(t AS BIGINT) END;
CREATE MACRO plain_int4(t) AS TRY_CAST(plain_int8(t) AS INTEGER);
CREATE MACRO plain_int2(t) AS TRY_CAST(plain_int8(t) AS SMALLINT);
CREATE MACRO plain_float8(t) AS CASE
    WHEN contains(t, '_') OR NOT ascii(t) BETWEEN 45 AND 57 THEN NULL
    WHEN isfinite(TRY_CAST(t AS DOUBLE)) AND TRY_CAST(t AS DOUBLE) <> 0 THEN TRY_CAST(t AS DOUBLE) ELSE NULL END;
CREATE MACRO jsonb_typeof(j) AS CASE WHEN j IS NULL THEN NULL ELSE CASE json_type(j)
    WHEN 'OBJECT' THEN 'object' WHEN 'ARRAY' THEN 'array' WHEN 'VARCHAR' THEN 'string' WHEN 'BOOLEAN' THEN 'boolean'
    WHEN 'NULL' THEN 'null' ELSE 'number' END END;
CREATE MACRO jsonb_array_length(j) AS CASE WHEN j IS NULL THEN NULL ELSE CASE json_type(j)
    WHEN 'ARRAY' THEN CAST(json_array_length(j) AS INTEGER)
    WHEN 'OBJECT' THEN fail('22023', 'cannot get array length of a non-array')
    ELSE fail('22023', 'cannot get array length of a scalar') END END;
CREATE MACRO json_list(items) AS '[' || array_to_string(list_transform(items, lambda item: coalesce(item, 'null')), ', ') || ']';
CREATE MACRO json_compact_list(items) AS '[' || array_to_string(list_transform(items, lambda item: coalesce(item, 'null')), ',') || ']';
CREATE MACRO jsonb_text(j) AS jsonb_in(j);
CREATE MACRO float8_of_number(t) AS CASE
    WHEN isinf(TRY_CAST(t AS DOUBLE)) OR TRY_CAST(t AS DOUBLE) IS NULL OR (TRY_CAST(t AS DOUBLE) = 0 AND regexp_matches(t, '[1-9]'))
    THEN CASE WHEN t IS NULL THEN NULL ELSE fail('22003', 'the number is out of range for type double precision') END
    ELSE TRY_CAST(t AS DOUBLE) END;
CREATE MACRO numeric_json(t) AS CASE WHEN contains(t, 'n') OR contains(t, 'N') THEN '"' || t || '"' ELSE t END;
