-- Arithmetic that fails where PostgreSQL's does.
CREATE MACRO int_div(a, b) AS CASE WHEN b = 0 THEN fail('22012', 'division by zero') ELSE a // b END;
CREATE MACRO int_mod(a, b) AS CASE WHEN b = 0 THEN fail('22012', 'division by zero') WHEN b = -1 THEN a - a ELSE a % b END;
CREATE MACRO float_add(a, b) AS CASE WHEN isinf(a + b) AND NOT isinf(a) AND NOT isinf(b) THEN fail('22003', 'value out of range: overflow') ELSE a + b END;
CREATE MACRO float_sub(a, b) AS CASE WHEN isinf(a - b) AND NOT isinf(a) AND NOT isinf(b) THEN fail('22003', 'value out of range: overflow') ELSE a - b END;
CREATE MACRO float_mul(a, b) AS CASE
    WHEN isinf(a * b) AND NOT isinf(a) AND NOT isinf(b) THEN fail('22003', 'value out of range: overflow')
    WHEN a * b = 0 AND a <> 0 AND b <> 0 THEN fail('22003', 'value out of range: underflow') ELSE a * b END;
CREATE MACRO float_div(a, b) AS CASE
    WHEN b = 0 AND NOT isnan(a) THEN fail('22012', 'division by zero')
    WHEN isinf(a / b) AND NOT isinf(a) THEN fail('22003', 'value out of range: overflow')
    WHEN a / b = 0 AND a <> 0 AND NOT isinf(b) THEN fail('22003', 'value out of range: underflow') ELSE a / b END;
