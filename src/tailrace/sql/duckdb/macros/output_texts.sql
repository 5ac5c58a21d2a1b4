-- Values as PostgreSQL's output functions print them.
CREATE MACRO float8_text(x) AS CASE WHEN abs(x) >= 1e15 THEN float8_long_text(x) ELSE regexp_replace(CAST(x AS VARCHAR), '\.0$', '') END;
CREATE MACRO with_zero(t) AS CASE WHEN starts_with(t, '.') THEN '0' || t WHEN starts_with(t, '-.') THEN '-0' || substring(t, 2) ELSE t END;
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
