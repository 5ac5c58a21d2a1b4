-- Bytes, by way of their hexadecimal digits where DuckDB has no function of bytes.
CREATE MACRO bytes_from(b, s) AS unhex(substring(hex(b), 2 * at_least_one(s) - 1));
CREATE MACRO bytes_for(b, s, n) AS CASE
    WHEN n < 0 AND b IS NOT NULL AND s IS NOT NULL THEN fail('22011', 'negative substring length not allowed')
    ELSE unhex(substring_for(hex(b), 2 * CAST(s AS BIGINT) - 1, 2 * CAST(n AS BIGINT))) END;
CREATE MACRO overlay_bytes(b, p, s, n) AS CASE
    WHEN b IS NULL OR p IS NULL OR n IS NULL THEN NULL
    WHEN s <= 0 THEN fail('22011', 'negative substring length not allowed')
    WHEN CAST(s AS BIGINT) + n > 2147483647 THEN fail('22003', 'integer out of range')
    ELSE bytes_for(b, 1, s - 1) || p || bytes_from(b, s + n) END;
CREATE MACRO base64_text(b) AS CASE WHEN octet_length(b) <= 57 THEN to_base64(b) ELSE encode_bytes(b, 'base64') END;
CREATE MACRO to_binary_digits(b) AS list_aggregate(list_transform(string_split(hex(b), ''), lambda d: CASE d
    WHEN '0' THEN '' WHEN '1' THEN '1' WHEN '2' THEN '1' WHEN '3' THEN '11' WHEN '4' THEN '1' WHEN '5' THEN '11' WHEN '6' THEN '11'
    WHEN '7' THEN '111' WHEN '8' THEN '1' WHEN '9' THEN '11' WHEN 'A' THEN '11' WHEN 'B' THEN '111' WHEN 'C' THEN '11'
    WHEN 'D' THEN '111' WHEN 'E' THEN '111' WHEN 'F' THEN '1111' ELSE '' END), 'string_agg', '');
CREATE MACRO is_rfc_uuid(u) AS substring(CAST(u AS VARCHAR), 20, 1) IN ('8', '9', 'a', 'b');
CREATE MACRO uuid_version(u) AS CASE WHEN is_rfc_uuid(u) THEN CAST(strpos('123456789abcdef', substring(CAST(u AS VARCHAR), 15, 1)) AS SMALLINT) END;
CREATE MACRO uuid_timestamp(u) AS CASE
    WHEN is_rfc_uuid(u) AND uuid_version(u) IN (1, 7) THEN make_timestamp(uuid_microseconds(CAST(u AS VARCHAR))) END;
CREATE MACRO bytes_of_integer(n, digits) AS unhex(right(lpad(hex(CAST(n AS BIGINT)), 16, '0'), digits));
CREATE MACRO integer_of_bytes(b, size) AS CASE WHEN octet_length(b) > size THEN fail('22003', 'integer out of range') ELSE signed_integer(b, size) END;
