-- Texts. Those that could make much of little are bounded to 10 MB.
CREATE MACRO is_ascii_text(t) AS strlen(t) = length(t);
CREATE MACRO text_limit() AS 10000000;
CREATE MACRO too_long() AS fail('54000', 'requested length too large: a text of a query can have 10 MB');
CREATE MACRO upper_text(t) AS CASE WHEN is_ascii_text(t) THEN upper(t) ELSE upper_other(t) END;
CREATE MACRO lower_text(t) AS CASE WHEN is_ascii_text(t) THEN lower(t) ELSE lower_other(t) END;
CREATE MACRO casefold_text(t) AS CASE WHEN is_ascii_text(t) THEN lower(t) ELSE casefold_other(t) END;
CREATE MACRO reverse_text(t) AS CASE WHEN is_ascii_text(t) THEN reverse(t) ELSE array_to_string(list_reverse(regexp_extract_all(t, '(?s).')), '') END;
CREATE MACRO at_least_one(n) AS CASE WHEN n < 1 THEN 1 ELSE CAST(n AS BIGINT) END;
CREATE MACRO substring_from(t, s) AS substring(t, at_least_one(s));
CREATE MACRO substring_for(t, s, n) AS CASE
    WHEN n < 0 AND t IS NOT NULL AND s IS NOT NULL THEN fail('22011', 'negative substring length not allowed')
    WHEN CAST(s AS BIGINT) + n <= 1 THEN left(t, 0)
    ELSE substring(t, at_least_one(s), CAST(s AS BIGINT) + n - at_least_one(s)) END;
CREATE MACRO overlay_text(t, p, s, n) AS CASE
    WHEN t IS NULL OR p IS NULL OR n IS NULL THEN NULL
    WHEN s <= 0 THEN fail('22011', 'negative substring length not allowed')
    WHEN CAST(s AS BIGINT) + n > 2147483647 THEN fail('22003', 'integer out of range')
    ELSE left(t, CAST(s AS BIGINT) - 1) || p || substring(t, at_least_one(CAST(s AS BIGINT) + n)) END;
CREATE MACRO replaced_bytes(t, f, r) AS strlen(t) + (strlen(t) - strlen(replace(t, f, ''))) // strlen(f) * (strlen(r) - strlen(f));
CREATE MACRO replace_text(t, f, r) AS CASE
    WHEN strlen(t) * strlen(r) > text_limit() AND strlen(f) > 0 AND replaced_bytes(t, f, r) > text_limit() THEN too_long()
    ELSE replace(t, f, r) END;
CREATE MACRO repeat_text(t, n) AS CASE WHEN n > 0 AND strlen(t) * CAST(n AS BIGINT) > text_limit() THEN too_long() ELSE repeat(t, greatest(n, n - n)) END;
CREATE MACRO pad_fill(t, n, f) AS CASE WHEN n <= length(t) OR strlen(f) = 0 THEN '' ELSE left(repeat(f, (n - length(t)) // length(f) + 1), n - length(t)) END;
CREATE MACRO lpad_text(t, n, f) AS CASE
    WHEN t IS NULL OR f IS NULL THEN NULL WHEN n > text_limit() THEN too_long() WHEN n <= 0 THEN ''
    ELSE pad_fill(t, n, f) || left(t, n) END;
CREATE MACRO rpad_text(t, n, f) AS CASE
    WHEN t IS NULL OR f IS NULL THEN NULL WHEN n > text_limit() THEN too_long() WHEN n <= 0 THEN ''
    ELSE left(t, n) || pad_fill(t, n, f) END;
CREATE MACRO split_part_text(t, d, n) AS CASE
    WHEN t IS NULL OR d IS NULL THEN NULL
    WHEN n = 0 THEN fail('22023', 'field position must not be zero')
    WHEN d = '' THEN CASE WHEN n IN (1, -1) THEN t ELSE left(t, n - n) END
    ELSE split_part(t, d, n) END;
CREATE MACRO text_characters(t) AS CASE WHEN t IS NULL THEN NULL ELSE regexp_extract_all(t, '(?s).') END;
CREATE MACRO text_to_array(t, d) AS CASE
    WHEN t IS NULL THEN NULL WHEN t = '' THEN CAST([] AS VARCHAR[]) WHEN d IS NULL THEN text_characters(t) WHEN d = '' THEN [t]
    ELSE string_split(t, d) END;
CREATE MACRO text_to_array_with_null(t, d, n) AS list_transform(text_to_array(t, d), lambda x: CASE WHEN x = n THEN NULL ELSE x END);
CREATE MACRO present_items(a) AS list_filter(a, lambda x: x IS NOT NULL);
CREATE MACRO joined_items(a, d) AS CASE
    WHEN a IS NULL OR d IS NULL THEN NULL WHEN len(present_items(a)) = 0 THEN ''
    ELSE list_reduce(present_items(a), lambda x, y: x || d || y) END;
CREATE MACRO joined_items_with_null(a, d, n) AS joined_items(list_transform(a, lambda x: coalesce(x, n)), d);
CREATE MACRO character_of(n) AS CASE
    WHEN n < 0 THEN fail('22023', 'character number must be positive')
    WHEN n = 0 THEN fail('54000', 'null character not permitted')
    WHEN n > 1114111 THEN fail('54000', 'requested character too large for encoding: ' || n)
    WHEN n BETWEEN 55296 AND 57343 THEN fail('54000', 'requested character not valid for encoding: ' || n)
    ELSE chr(n) END;
CREATE MACRO quoted_literal(t) AS CASE
    WHEN contains(t, '\') THEN 'E''' || replace(replace(t, '\', '\\'), '''', '''''') || ''''
    ELSE '''' || replace(t, '''', '''''') || '''' END;
CREATE MACRO like_text(t, p) AS CASE WHEN contains(p, '\') THEN like_with_escapes(t, p) ELSE t LIKE p END;
CREATE MACRO normalized_text(t, f) AS CASE WHEN is_ascii_text(t) AND upper(f) IN ('NFC', 'NFD', 'NFKC', 'NFKD') THEN t ELSE normalize_other(t, f) END;
CREATE MACRO boolean_of_text(t) AS CASE
    WHEN t IS NULL THEN NULL
    WHEN lower(trim(t, E' \t\n\r\v\f')) IN ('t', 'tr', 'tru', 'true', 'y', 'ye', 'yes', 'on', '1') THEN true
    WHEN lower(trim(t, E' \t\n\r\v\f')) IN ('f', 'fa', 'fal', 'fals', 'false', 'n', 'no', 'of', 'off', '0') THEN false
    ELSE fail('22P02', 'invalid input syntax for type boolean: "' || t || '"') END;
CREATE MACRO uuid_of_text(t) AS CASE
    WHEN t IS NULL THEN NULL
    WHEN regexp_full_match(t, '([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}|\{([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}\}')
    THEN CAST(replace(replace(replace(t, '-', ''), '{', ''), '}', '') AS UUID)
    ELSE fail('22P02', 'invalid input syntax for type uuid: "' || t || '"') END;
CREATE MACRO cut_and_padded(t, n) AS CASE WHEN length(t) >= n THEN left(t, n) ELSE rpad(t, n, ' ') END;
CREATE MACRO right_text(t, n) AS CASE WHEN n = -2147483648 THEN t ELSE right(t, n) END;
CREATE MACRO joined_pairs(pairs) AS CASE WHEN len(pairs) > 0 THEN substring(array_to_string(list_transform(pairs, lambda x: x.d || x.v), ''), length(pairs[1].d) + 1) END;
