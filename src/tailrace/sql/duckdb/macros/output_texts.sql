-- Values as PostgreSQL's output functions print them.
CREATE MACRO scientific_text(s) AS
    left(s, 1) || CASE WHEN strlen(rtrim(replace(s, '.', ''), '0')) > 1 THEN '.' || substring(rtrim(replace(s, '.', ''), '0'), 2) ELSE '' END
    || 'e+' || lpad(CAST(strlen(split_part(s, '.', 1)) - 1 AS VARCHAR), 2, '0');
CREATE MACRO float_text_above(x, limit_of_digits) AS CASE
    WHEN isnan(x) THEN 'NaN' WHEN isinf(x) THEN CASE WHEN x > 0 THEN 'Infinity' ELSE '-Infinity' END
    WHEN abs(x) >= limit_of_digits AND NOT contains(CAST(x AS VARCHAR), 'e')
    THEN CASE WHEN x < 0 THEN '-' ELSE '' END || scientific_text(CAST(abs(x) AS VARCHAR))
    ELSE regexp_replace(CAST(x AS VARCHAR), '\.0$', '') END;
CREATE MACRO float8_text(x) AS float_text_above(x, 1e15);
CREATE MACRO float4_text(x) AS float_text_above(x, 1e6);
CREATE MACRO date_text(d) AS replace(CAST(d AS VARCHAR), '(BC)', 'BC');
CREATE MACRO timestamp_text(t) AS CASE WHEN contains(CAST(t AS VARCHAR), ' (BC)') THEN replace(CAST(t AS VARCHAR), ' (BC)', '') || ' BC' ELSE CAST(t AS VARCHAR) END;
CREATE MACRO timestamptz_text(t) AS CASE
    WHEN isinf(t) THEN CAST(t AS VARCHAR)
    WHEN contains(CAST(t AS VARCHAR), ' (BC)') THEN replace(CAST(t AS VARCHAR), ' (BC)', '') || '+00 BC' ELSE CAST(t AS VARCHAR) || '+00' END;
CREATE MACRO bytea_text(b) AS '\x' || lower(hex(b));
CREATE MACRO array_item_text(t) AS CASE
    WHEN t IS NULL THEN 'NULL'
    WHEN t = '' OR upper(t) = 'NULL' OR regexp_matches(t, E'[ \\t\\n\\r\\v\\f{},"\\\\]') THEN '"' || replace(replace(t, '\', '\\'), '"', '\"') || '"'
    ELSE t END;
CREATE MACRO array_text(items) AS '{' || array_to_string(items, ',') || '}';
