-- Dates, times and intervals. Local times and instants are TIMESTAMPs; the parts of intervals are integers.
CREATE MACRO checked_date(d) AS CASE WHEN d < DATE '4714-11-24 (BC)' THEN fail('22008', 'date out of range') ELSE d END;
CREATE MACRO checked_timestamp(t) AS CASE WHEN t < TIMESTAMP '4714-11-24 (BC) 00:00:00' THEN fail('22008', 'timestamp out of range') ELSE t END;
-- Texts in the usual form are read by DuckDB, others and wrong ones in Python.
CREATE MACRO plain_timestamp(t) AS CASE
    WHEN regexp_full_match(t, '\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?') AND NOT starts_with(t, '0000')
    THEN TRY_CAST(t AS TIMESTAMP) END;
CREATE MACRO date_of_text(t) AS coalesce(CASE WHEN strlen(t) = 10 THEN CAST(plain_timestamp(t) AS DATE) END, date_of_other_text(t));
CREATE MACRO timestamp_of_text(t) AS coalesce(plain_timestamp(t), timestamp_of_other_text(t));
CREATE MACRO timestamptz_of_text(t) AS coalesce(plain_timestamp(regexp_replace(t, '(:\d{2}(?:\.\d+)?)(?:Z|\+00(?::00)?)$', '\1')), timestamptz_of_other_text(t));
CREATE MACRO interval_months(i) AS 12 * date_part('year', i) + date_part('month', i);
CREATE MACRO interval_days(i) AS date_part('day', i);
CREATE MACRO interval_micros(i) AS 3600000000 * date_part('hour', i) + 60000000 * date_part('minute', i) + date_part('microseconds', i);
CREATE MACRO interval_of(m, d, u) AS CASE
    WHEN m NOT BETWEEN -2147483648 AND 2147483647 OR d NOT BETWEEN -2147483648 AND 2147483647 THEN fail('22008', 'interval out of range')
    WHEN abs(u) > 9223372036854774 THEN fail('0A000', 'an interval of more than 292 years in hours is not supported')
    ELSE to_months(CAST(m AS INTEGER)) + to_days(CAST(d AS INTEGER)) + to_microseconds(CAST(u AS BIGINT)) END;
CREATE MACRO interval_add(a, b) AS interval_of(
    interval_months(a) + interval_months(b), interval_days(a) + interval_days(b), interval_micros(a) + interval_micros(b));
CREATE MACRO interval_sub(a, b) AS interval_of(
    interval_months(a) - interval_months(b), interval_days(a) - interval_days(b), interval_micros(a) - interval_micros(b));
CREATE MACRO interval_greatest(items) AS CASE WHEN len(list_filter(items, lambda x: x IS NOT NULL)) > 0
    THEN list_reduce(list_filter(items, lambda x: x IS NOT NULL), lambda x, y: CASE WHEN x >= y THEN x ELSE y END) END;
CREATE MACRO interval_least(items) AS CASE WHEN len(list_filter(items, lambda x: x IS NOT NULL)) > 0
    THEN list_reduce(list_filter(items, lambda x: x IS NOT NULL), lambda x, y: CASE WHEN x <= y THEN x ELSE y END) END;
-- A product's fractions of months and days are carried down to the next smaller unit, rounded to microseconds on the way.
CREATE MACRO rounded_micros(x) AS round_even(x * 1000000.0::DOUBLE, 0) / 1000000.0::DOUBLE;
CREATE MACRO interval_carried(m, d, u, month_days, seconds) AS interval_of(
    trunc(m),
    trunc(d) + trunc(month_days) + CASE WHEN abs(seconds) >= 86400 THEN trunc(seconds / 86400.0::DOUBLE) ELSE 0 END,
    round_even(u + (seconds - CASE WHEN abs(seconds) >= 86400 THEN trunc(seconds / 86400.0::DOUBLE) * 86400 ELSE 0 END) * 1000000.0::DOUBLE, 0));
CREATE MACRO interval_with_days(m, d, u, month_days) AS
    interval_carried(m, d, u, month_days, rounded_micros((d - trunc(d) + month_days - trunc(month_days)) * 86400.0::DOUBLE));
CREATE MACRO interval_scaled(m, d, u) AS CASE
    WHEN isnan(m) OR isnan(d) OR isnan(u) THEN fail('22008', 'interval out of range')
    ELSE interval_with_days(m, d, u, rounded_micros((m - trunc(m)) * 30.0::DOUBLE)) END;
CREATE MACRO interval_mul(i, f) AS CASE
    WHEN isinf(f) THEN fail('0A000', 'infinite intervals are not supported')
    ELSE interval_scaled(interval_months(i) * f, interval_days(i) * f, interval_micros(i) * f) END;
CREATE MACRO interval_div(i, f) AS CASE
    WHEN f = 0 THEN fail('22012', 'division by zero')
    ELSE interval_scaled(interval_months(i) / f, interval_days(i) / f, interval_micros(i) / f) END;
CREATE MACRO interval_of_list(l) AS CASE WHEN l IS NULL THEN NULL ELSE interval_of(l[1], l[2], l[3]) END;
CREATE MACRO interval_text(i) AS interval_parts_text(interval_months(i), interval_days(i), interval_micros(i));
CREATE MACRO moment_difference(a, b) AS to_days(CAST((epoch_us(a) - epoch_us(b)) // 86400000000 AS INTEGER))
    + to_microseconds((epoch_us(a) - epoch_us(b)) % 86400000000);
CREATE MACRO make_time_of(us) AS CAST(make_timestamp(((us) % 86400000000 + 86400000000) % 86400000000) AS TIME);
CREATE MACRO to_local(t, zone) AS make_timestamp(local_microseconds(epoch_us(t), zone));
CREATE MACRO to_instant(t, zone) AS make_timestamp(instant_microseconds(epoch_us(t), zone));
CREATE MACRO interval_of_zone(i) AS CASE
    WHEN interval_months(i) <> 0 OR interval_days(i) <> 0 THEN fail('22023', 'interval time zone must not include months or days')
    ELSE to_microseconds(interval_micros(i) // 1000000 * 1000000) END;
CREATE MACRO rounded_to_digits(us, step) AS CASE
    WHEN us >= 0 THEN (us + step // 2) // step * step ELSE -((-us + step // 2) // step * step) END;
CREATE MACRO bin_start(width, t, origin, rest) AS make_timestamp(
    epoch_us(origin) + (epoch_us(t) - epoch_us(origin)) - rest - CASE WHEN rest < 0 THEN width ELSE 0 END);
CREATE MACRO bin_of(width, t, origin) AS CASE
    WHEN t IS NULL OR origin IS NULL THEN NULL
    WHEN width <= 0 THEN fail('22008', 'stride must be greater than zero')
    ELSE bin_start(width, t, origin, (epoch_us(t) - epoch_us(origin)) % width) END;
CREATE MACRO date_bin_of(i, t, origin) AS CASE
    WHEN t IS NULL OR origin IS NULL THEN NULL
    WHEN interval_months(i) <> 0 THEN fail('0A000', 'timestamps cannot be binned into intervals containing months or years')
    ELSE bin_of(interval_days(i) * 86400000000 + interval_micros(i), t, origin) END;
-- The first item of each pair of bounds is the smaller one; the second is null if one of them is.
CREATE MACRO overlap_of(low, high, other_low, other_high) AS CASE
    WHEN low IS NULL OR other_low IS NULL THEN NULL
    WHEN low > other_low THEN CASE WHEN other_high IS NULL THEN NULL WHEN low < other_high THEN true WHEN high IS NULL THEN NULL ELSE false END
    WHEN low < other_low THEN CASE WHEN high IS NULL THEN NULL WHEN other_low < high THEN true WHEN other_high IS NULL THEN NULL ELSE false END
    WHEN high IS NULL OR other_high IS NULL THEN NULL ELSE true END;
CREATE MACRO upper_bound(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL ELSE greatest(a, b) END;
CREATE MACRO overlaps_of(a, b, c, d) AS overlap_of(least(a, b), upper_bound(a, b), least(c, d), upper_bound(c, d));
CREATE MACRO instant_of_seconds(s) AS CASE
    WHEN isinf(s) THEN fail('0A000', 'infinite timestamps are not supported')
    WHEN isnan(s) THEN fail('22008', 'timestamp cannot be NaN')
    WHEN s < -210866803200.0::DOUBLE OR s >= 9224318016000.0::DOUBLE THEN fail('22008', 'timestamp out of range')
    ELSE make_timestamp(CAST(round_even((s - 946684800.0::DOUBLE) * 1000000.0::DOUBLE, 0) AS BIGINT) + 946684800000000) END;
CREATE MACRO date_of(y, m, d) AS CASE
    WHEN y = 0 OR m NOT BETWEEN 1 AND 12 OR d NOT BETWEEN 1 AND 31 OR y < -4713 OR y > 5874897
        OR d > day(last_day(make_date(CASE WHEN y < 0 THEN y + 1 ELSE y END, m, 1)))
    THEN fail('22008', 'date field value out of range: ' || y || '-' || lpad(CAST(m AS VARCHAR), 2, '0') || '-' || lpad(CAST(d AS VARCHAR), 2, '0'))
    ELSE checked_date(make_date(CASE WHEN y < 0 THEN y + 1 ELSE y END, m, d)) END;
CREATE MACRO micros_of_clock(h, m, s) AS CASE
    WHEN isnan(s) OR h NOT BETWEEN 0 AND 24 OR m NOT BETWEEN 0 AND 59 OR s < 0 OR s > 60 OR h * 3600 + m * 60 + s > 86400
    THEN fail('22008', 'time field value out of range: ' || h || ':' || m || ':' || s)
    ELSE (h * 60 + m) * CAST(60000000 AS BIGINT) + CAST(round_even(s * 1000000.0::DOUBLE, 0) AS BIGINT) END;
CREATE MACRO time_of_clock(us) AS CASE
    WHEN us = 86400000000 THEN fail('0A000', 'the time 24:00:00 is not supported') ELSE CAST(make_timestamp(us) AS TIME) END;
CREATE MACRO timestamp_of(y, mo, d, h, mi, s) AS checked_timestamp(
    CAST(date_of(y, mo, d) AS TIMESTAMP) + to_microseconds(micros_of_clock(h, mi, s)));
CREATE MACRO interval_of_units(y, mo, w, d, h, mi, s) AS CASE
    WHEN isnan(s) OR isinf(s) THEN fail('22008', 'interval out of range')
    ELSE interval_of(CAST(y AS BIGINT) * 12 + mo, CAST(w AS BIGINT) * 7 + d,
        h * CAST(3600000000 AS BIGINT) + mi * CAST(60000000 AS BIGINT) + round_even(s * 1000000.0::DOUBLE, 0)) END;
CREATE MACRO age_of(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL ELSE age(a, b) END;
-- The years before 1 are counted from -1 downwards by PostgreSQL, from 0 by DuckDB.
CREATE MACRO shown_year(y) AS CASE WHEN y > 0 THEN y ELSE y - 1 END;
CREATE MACRO decade_of(y) AS CASE WHEN y >= 0 THEN y // 10 ELSE -((8 - (y - 1)) // 10) END;
CREATE MACRO century_of(y) AS CASE WHEN y > 0 THEN (y + 99) // 100 ELSE -((99 - (y - 1)) // 100) END;
CREATE MACRO millennium_of(y) AS CASE WHEN y > 0 THEN (y + 999) // 1000 ELSE -((999 - (y - 1)) // 1000) END;
CREATE MACRO first_of_year(y) AS CAST(make_date(y, 1, 1) AS TIMESTAMP);
CREATE MACRO century_start(y) AS first_of_year(CASE WHEN y > 0 THEN ((y + 99) // 100) * 100 - 99 ELSE -((99 - (y - 1)) // 100) * 100 + 1 END);
CREATE MACRO millennium_start(y) AS first_of_year(CASE WHEN y > 0 THEN ((y + 999) // 1000) * 1000 - 999 ELSE -((999 - (y - 1)) // 1000) * 1000 + 1 END);
CREATE MACRO decade_start(y) AS first_of_year(CASE WHEN y > 0 THEN (y // 10) * 10 ELSE -((8 - (y - 1)) // 10) * 10 END);
CREATE MACRO julian_day(t) AS date_diff('day', DATE '1970-01-01', CAST(t AS DATE)) + 2440588;
CREATE MACRO micros_of_day(t) AS (epoch_us(t) % 86400000000 + 86400000000) % 86400000000;
CREATE MACRO interval_quarter(i) AS CASE
    WHEN interval_months(i) >= 0 THEN interval_months(i) % 12 // 3 + 1 ELSE -(-interval_months(i) % 12 // 3 + 1) END;
-- A year of an interval has 365.25 days.
CREATE MACRO interval_whole_seconds(i) AS
    interval_months(i) // 12 * 31557600 + interval_months(i) % 12 * 2592000 + interval_days(i) * 86400;
CREATE MACRO interval_seconds(i) AS CAST(interval_micros(i) AS DOUBLE) / 1000000.0::DOUBLE
    + 31557600.0::DOUBLE * (interval_months(i) // 12) + 2592000.0::DOUBLE * (interval_months(i) % 12) + 86400.0::DOUBLE * interval_days(i);
-- Series.
CREATE MACRO series_size(n) AS CASE WHEN n > 10000000 THEN fail('0A000', 'a series of more than 10 million rows is not supported') ELSE n END;
CREATE MACRO integer_series(a, b, step) AS CASE
    WHEN step = 0 THEN fail('22023', 'step size cannot equal zero')
    WHEN a IS NULL OR b IS NULL OR step IS NULL THEN NULL
    WHEN (step > 0 AND a > b) OR (step < 0 AND a < b) THEN []
    ELSE list_transform(range(0, CAST(series_size((CAST(b AS HUGEINT) - a) // step + 1) AS BIGINT)), lambda x: CAST(a + CAST(x AS HUGEINT) * step AS BIGINT)) END;
CREATE MACRO interval_span(i) AS (CAST(interval_months(i) AS HUGEINT) * 30 + interval_days(i)) * 86400000000 + interval_micros(i);
CREATE MACRO has_rows(a, b, span) AS (span > 0 AND a <= b) OR (span < 0 AND a >= b);
CREATE MACRO moment_series(a, b, i) AS CASE
    WHEN interval_span(i) = 0 THEN fail('22023', 'step size cannot equal zero')
    WHEN a IS NULL OR b IS NULL OR i IS NULL THEN NULL
    WHEN NOT has_rows(a, b, interval_span(i)) THEN []
    WHEN series_size((CAST(epoch_us(b) AS HUGEINT) - epoch_us(a)) // interval_span(i)) IS NULL THEN NULL
    WHEN interval_months(i) = 0 THEN list_transform(
        range(0, CAST((epoch_us(b) - epoch_us(a)) // interval_span(i) + 1 AS BIGINT)), lambda x: make_timestamp(epoch_us(a) + x * CAST(interval_span(i) AS BIGINT)))
    ELSE list_transform(stepped_months(epoch_us(a), epoch_us(b), [interval_months(i), interval_days(i), interval_micros(i)]), lambda x: make_timestamp(x)) END;
