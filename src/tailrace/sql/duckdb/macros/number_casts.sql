-- Numbers from texts and from other numbers.
CREATE MACRO int2_of_int(n) AS CASE WHEN n < -32768 OR n > 32767 THEN fail('22003', 'smallint out of range') ELSE CAST(n AS SMALLINT) END;
CREATE MACRO int4_of_int(n) AS CASE WHEN n < -2147483648 OR n > 2147483647 THEN fail('22003', 'integer out of range') ELSE CAST(n AS INTEGER) END;
CREATE MACRO int2_of_float(x) AS CASE WHEN x >= 32767.5::DOUBLE OR x < -32768.5::DOUBLE THEN fail('22003', 'smallint out of range') ELSE CAST(round_even(x, 0) AS SMALLINT) END;
CREATE MACRO int4_of_float(x) AS CASE WHEN x >= 2147483647.5::DOUBLE OR x < -2147483648.5::DOUBLE THEN fail('22003', 'integer out of range') ELSE CAST(round_even(x, 0) AS INTEGER) END;
CREATE MACRO int8_of_float(x) AS CASE WHEN x >= 9223372036854775808::DOUBLE OR x < -9223372036854775808::DOUBLE THEN fail('22003', 'bigint out of range') ELSE CAST(round_even(x, 0) AS BIGINT) END;
CREATE MACRO is_integer_text(t) AS regexp_full_match(t, '[ \t\n\r\v\f]*[+-]?[0-9]{1,18}[ \t\n\r\v\f]*');
CREATE MACRO int8_of_text(t) AS CASE WHEN is_integer_text(t) THEN TRY_CAST(t AS BIGINT) ELSE integer_in(t, 64) END;
CREATE MACRO int4_of_text(t) AS CASE
    WHEN is_integer_text(t) THEN CASE WHEN TRY_CAST(t AS BIGINT) < -2147483648 OR TRY_CAST(t AS BIGINT) > 2147483647 THEN fail('22003', 'value "' || t || '" is out of range for type integer') ELSE CAST(TRY_CAST(t AS BIGINT) AS INTEGER) END
    ELSE CAST(integer_in(t, 32) AS INTEGER) END;
CREATE MACRO int2_of_text(t) AS CASE
    WHEN is_integer_text(t) THEN CASE WHEN TRY_CAST(t AS BIGINT) < -32768 OR TRY_CAST(t AS BIGINT) > 32767 THEN fail('22003', 'value "' || t || '" is out of range for type smallint') ELSE CAST(TRY_CAST(t AS BIGINT) AS SMALLINT) END
    ELSE CAST(integer_in(t, 16) AS SMALLINT) END;
CREATE MACRO is_float_text(t) AS regexp_full_match(t, '[+-]?[0-9]{1,30}(\.[0-9]{0,30})?');
CREATE MACRO float8_of_text(t) AS CASE WHEN is_float_text(t) THEN TRY_CAST(t AS DOUBLE) ELSE float_in(t, 'float8') END;
CREATE MACRO float4_of_text(t) AS CASE WHEN is_float_text(t) AND strlen(t) < 30 THEN TRY_CAST(t AS FLOAT) ELSE CAST(float_in(t, 'float4') AS FLOAT) END;
CREATE MACRO float4_of_float8(x) AS CASE
    WHEN isnan(x) OR isinf(x) OR x = 0 THEN CAST(x AS FLOAT)
    WHEN abs(x) >= 3.4028235677973366e38::DOUBLE THEN fail('22003', 'value out of range: overflow')
    WHEN abs(x) <= 7.006492321624085e-46::DOUBLE THEN fail('22003', 'value out of range: underflow') ELSE CAST(x AS FLOAT) END;
CREATE MACRO numeric_of_text(t) AS CASE WHEN regexp_full_match(t, '(0|-?[1-9][0-9]{0,30})(\.[0-9]{1,30})?') THEN t ELSE numeric_in(t) END;
CREATE MACRO numeric_of_digits(s) AS CASE WHEN contains(s, 'e') OR s = '-0' OR s = 'inf' OR s = '-inf' OR s = 'nan' THEN numeric_in(s) ELSE s END;
CREATE MACRO numeric_of_float8(x) AS numeric_of_digits(format('{:.15g}', x));
CREATE MACRO numeric_of_float4(x) AS numeric_of_digits(format('{:.6g}', CAST(x AS DOUBLE)));
CREATE MACRO no_decimal(t) AS CASE WHEN t = 'NaN' THEN fail('0A000', 'NaN is not supported in a numeric with a precision') ELSE fail('22003', 'numeric field overflow') END;
