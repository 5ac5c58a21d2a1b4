-- Arithmetic that fails where PostgreSQL's does.
CREATE MACRO int_div(a, b) AS CASE WHEN b = 0 AND a IS NOT NULL THEN fail('22012', 'division by zero') ELSE a // b END;
CREATE MACRO int_mod(a, b) AS CASE WHEN b = 0 AND a IS NOT NULL THEN fail('22012', 'division by zero') WHEN b = -1 THEN a - a ELSE a % b END;
CREATE MACRO decimal_mod(a, b) AS CASE WHEN b = 0 AND a IS NOT NULL THEN fail('22012', 'division by zero') ELSE a % b END;
CREATE MACRO float_add(a, b) AS CASE WHEN isinf(a + b) AND NOT isinf(a) AND NOT isinf(b) THEN fail('22003', 'value out of range: overflow') ELSE a + b END;
CREATE MACRO float_sub(a, b) AS CASE WHEN isinf(a - b) AND NOT isinf(a) AND NOT isinf(b) THEN fail('22003', 'value out of range: overflow') ELSE a - b END;
CREATE MACRO float_mul(a, b) AS CASE
    WHEN isinf(a * b) AND NOT isinf(a) AND NOT isinf(b) THEN fail('22003', 'value out of range: overflow')
    WHEN a * b = 0 AND a <> 0 AND b <> 0 THEN fail('22003', 'value out of range: underflow') ELSE a * b END;
CREATE MACRO float_div(a, b) AS CASE
    WHEN b = 0 AND NOT isnan(a) THEN fail('22012', 'division by zero')
    WHEN isinf(a / b) AND NOT isinf(a) THEN fail('22003', 'value out of range: overflow')
    WHEN a / b = 0 AND a <> 0 AND NOT isinf(b) THEN fail('22003', 'value out of range: underflow') ELSE a / b END;

-- Bits. The places to shift by are taken modulo the size of a word, and bits that leave the word are lost.
CREATE MACRO low_bits(v, size) AS CASE WHEN v & (size - 1) >= size // 2 THEN (v & (size - 1)) - size ELSE v & (size - 1) END;
CREATE MACRO int2_shift_left(a, n) AS CAST(low_bits(CAST(a AS BIGINT) * (1::BIGINT << (n & 31)), 65536::BIGINT) AS SMALLINT);
CREATE MACRO int4_shift_left(a, n) AS CAST(low_bits(CAST(a AS BIGINT) * (1::BIGINT << (n & 31)), 4294967296::BIGINT) AS INTEGER);
CREATE MACRO int8_shift_left(a, n) AS CAST(low_bits(CAST(a AS HUGEINT) * (1::HUGEINT << (n & 63)), 18446744073709551616::HUGEINT) AS BIGINT);

-- Functions of doubles.
CREATE MACRO float_sqrt(x) AS CASE WHEN x < 0 THEN fail('2201F', 'cannot take square root of a negative number') ELSE sqrt(x) END;
CREATE MACRO float_power(a, b) AS CASE
    WHEN isnan(a) THEN CASE WHEN b = 0 THEN 1::DOUBLE ELSE a + b END
    WHEN isnan(b) THEN CASE WHEN a = 1 THEN 1::DOUBLE ELSE b + a END
    WHEN a = 0 AND b < 0 THEN fail('2201F', 'zero raised to a negative power is undefined')
    WHEN a < 0 AND floor(b) <> b THEN fail('2201F', 'a negative number raised to a non-integer power yields a complex result')
    WHEN isinf(a) OR isinf(b) THEN pow(a, b)
    WHEN isinf(pow(a, b)) THEN fail('22003', 'value out of range: overflow')
    WHEN pow(a, b) = 0 AND a <> 0 THEN fail('22003', 'value out of range: underflow') ELSE pow(a, b) END;
CREATE MACRO float_exp(x) AS CASE
    WHEN isinf(x) OR isnan(x) THEN exp(x)
    WHEN isinf(exp(x)) THEN fail('22003', 'value out of range: overflow')
    WHEN exp(x) = 0 THEN fail('22003', 'value out of range: underflow') ELSE exp(x) END;
CREATE MACRO log_argument(x) AS CASE
    WHEN x = 0 THEN fail('2201E', 'cannot take logarithm of zero')
    WHEN x < 0 THEN fail('2201E', 'cannot take logarithm of a negative number') ELSE x END;
CREATE MACRO finite_argument(x) AS CASE WHEN isinf(x) THEN fail('22003', 'input is out of range') ELSE x END;
CREATE MACRO unit_argument(x) AS CASE WHEN (x < -1 OR x > 1) AND NOT isnan(x) THEN fail('22003', 'input is out of range') ELSE x END;
CREATE MACRO float_acosh(x) AS CASE WHEN x < 1 THEN fail('22003', 'input is out of range') ELSE acosh(x) END;
CREATE MACRO float_atanh(x) AS CASE
    WHEN x = 1 THEN 'inf'::DOUBLE WHEN x = -1 THEN '-inf'::DOUBLE WHEN isnan(x) THEN x
    WHEN x < -1 OR x > 1 THEN fail('22003', 'input is out of range') ELSE atanh(x) END;
CREATE MACRO float_cot(x) AS 1::DOUBLE / tan(finite_argument(x));
CREATE MACRO float_sign(x) AS CASE WHEN isnan(x) THEN 0::DOUBLE ELSE CAST(sign(x) AS DOUBLE) END;
CREATE MACRO float_gamma(x) AS CASE
    WHEN isnan(x) THEN x
    WHEN isinf(x) THEN CASE WHEN x < 0 THEN fail('22003', 'value out of range: overflow') ELSE x END
    WHEN x = 0 OR (x < 0 AND floor(x) = x) THEN fail('22003', 'value out of range: overflow')
    WHEN isinf(gamma(x)) THEN fail('22003', 'value out of range: overflow')
    WHEN gamma(x) = 0 THEN fail('22003', 'value out of range: underflow') ELSE gamma(x) END;
CREATE MACRO float_lgamma(x) AS CASE
    WHEN isnan(x) OR isinf(x) THEN abs(x)
    WHEN (x <= 0 AND floor(x) = x) OR isinf(lgamma(x)) THEN fail('22003', 'value out of range: overflow') ELSE lgamma(x) END;
CREATE MACRO bucket_of(x, thresholds) AS CASE
    WHEN len(list_filter(thresholds, lambda t: t IS NULL)) > 0 THEN fail('22004', 'thresholds array must not contain NULLs')
    WHEN thresholds <> list_sort(thresholds) THEN fail('0A000', 'width_bucket of thresholds that are not sorted is not supported')
    WHEN x IS NULL THEN NULL
    ELSE CAST(len(list_filter(thresholds, lambda t: t <= x)) AS INTEGER) END;
CREATE MACRO random_between(low, high) AS CASE
    WHEN low > high THEN fail('22023', 'lower bound must be less than or equal to upper bound')
    ELSE low + CAST(floor(random() * (CAST(high AS HUGEINT) - low + 1)) AS HUGEINT) END;

-- Whole numbers.
CREATE MACRO int_gcd(a, b) AS gcd(CAST(a AS HUGEINT), CAST(b AS HUGEINT));
CREATE MACRO int_lcm(a, b) AS CASE
    WHEN a = 0 OR b = 0 THEN 0::HUGEINT
    ELSE abs(CAST(a AS HUGEINT)) // int_gcd(a, b) * abs(CAST(b AS HUGEINT)) END;
CREATE MACRO ranged(v, low, high, message) AS CASE WHEN v < low OR v > high THEN fail('22003', message) ELSE v END;
CREATE MACRO as_int4(v) AS CAST(ranged(v, -2147483648, 2147483647, 'integer out of range') AS INTEGER);
CREATE MACRO as_int8(v) AS CAST(ranged(v, -9223372036854775808, 9223372036854775807, 'bigint out of range') AS BIGINT);
CREATE MACRO unsigned4(n) AS CASE WHEN n < 0 THEN CAST(n AS BIGINT) + 4294967296 ELSE CAST(n AS BIGINT) END;
CREATE MACRO unsigned8(n) AS CAST(CASE WHEN n < 0 THEN CAST(n AS HUGEINT) + 18446744073709551616 ELSE CAST(n AS HUGEINT) END AS UBIGINT);

-- Percentiles of sorted lists.
CREATE MACRO percentile_argument(p) AS CASE WHEN p < 0 OR p > 1 OR isnan(p) THEN fail('22003', 'percentile value ' || p || ' is not between 0 and 1') ELSE p END;
CREATE MACRO between_items(low, high, part) AS CASE WHEN low = high THEN low ELSE low + part * (high - low) END;
CREATE MACRO percentile_between(items, p) AS CASE WHEN len(items) > 0 THEN between_items(
    items[CAST(floor(percentile_argument(p) * (len(items) - 1)) AS BIGINT) + 1],
    items[CAST(ceil(percentile_argument(p) * (len(items) - 1)) AS BIGINT) + 1],
    p * (len(items) - 1) - floor(p * (len(items) - 1))) END;
CREATE MACRO percentile_at(items, p) AS CASE WHEN len(items) > 0 THEN items[greatest(1, CAST(ceil(percentile_argument(p) * len(items)) AS BIGINT))] END;
