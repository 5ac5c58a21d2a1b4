d + 1
d - 1
d + k
1 + d
d - date '2000-01-01'
d - d
date '2024-03-01' - date '2024-02-01'
d + interval '1 day'
d + interval '1 month'
d - interval '1 year'
date '2024-01-31' + interval '1 month'
date '2024-02-29' + interval '1 year'
date '2024-03-31' - interval '1 month'
d + time '10:00'
ts + interval '1 day'
ts + interval '1 hour 30 minutes'
ts - interval '1 month'
ts - interval '90 seconds'
ts + '1 day'::interval
ts + interval '1' day
ts + interval '1.5 days'
ts + 1
ts - timestamptz '2024-01-01 00:00:00+00'
ts - ts
timestamp '2024-03-01 12:00' - timestamp '2024-02-28 18:30'
timestamptz '2024-03-01 12:00+00' - interval '2 days 3 hours'
interval '1 day' + interval '2 hours'
interval '1 day' - interval '2 hours'
interval '1 day' * 2
interval '1 day' * 1.5
2 * interval '1 hour'
interval '1 hour' / 2
-interval '1 day'
interval '1 day' * k
k * interval '1 day'
interval '1 month' = interval '30 days'
interval '24 hours' = interval '1 day'
interval '1 day' > interval '23 hours'
interval '1 year 2 months 3 days 04:05:06'
interval '90 minutes'
interval '36 hours'
interval '1 week'
interval '-1 day'
interval '1 day ago'
interval '0.5 months'
interval '100 milliseconds'
justify_days(interval '35 days')
justify_hours(interval '27 hours')
justify_interval(interval '1 mon -1 hour')
make_interval(days => 10)
make_interval(0, 1, 0, 3)
date_trunc('year', ts)
date_trunc('quarter', ts)
date_trunc('month', ts)
date_trunc('week', ts)
date_trunc('day', ts)
date_trunc('hour', ts)
date_trunc('minute', ts)
date_trunc('second', ts)
date_trunc('milliseconds', ts)
date_trunc('decade', ts)
date_trunc('century', ts)
date_trunc('month', d)
date_trunc('week', d)
date_trunc('year', d)
date_trunc('day', timestamp '2024-02-29 12:34:56')
date_trunc('day', ts, 'America/New_York')
date_trunc('month', '2024-02-29'::date)
date_trunc('hour', interval '2 days 3:45')
date_trunc('fortnight', ts)
date_trunc('MONTH', ts)
extract(year FROM ts)
extract(month FROM ts)
extract(day FROM ts)
extract(hour FROM ts)
extract(minute FROM ts)
extract(second FROM ts)
extract(milliseconds FROM ts)
extract(microseconds FROM ts)
extract(epoch FROM ts)
extract(dow FROM ts)
extract(isodow FROM ts)
extract(doy FROM ts)
extract(week FROM ts)
extract(isoyear FROM ts)
extract(quarter FROM ts)
extract(decade FROM ts)
extract(century FROM ts)
extract(millennium FROM ts)
extract(year FROM d)
extract(month FROM d)
extract(day FROM d)
extract(dow FROM d)
extract(isodow FROM d)
extract(doy FROM d)
extract(week FROM d)
extract(epoch FROM d)
extract(quarter FROM d)
extract(hour FROM d)
extract(julian FROM d)
extract(timezone FROM ts)
extract(day FROM interval '40 days 1 minute')
extract(epoch FROM interval '1 day')
extract(hour FROM interval '90 minutes')
extract(month FROM interval '14 months')
extract(epoch FROM ts - timestamptz '2024-01-01 00:00:00+00')
extract(fortnight FROM ts)
extract(hour FROM time '10:30')
date_part('year', ts)
date_part('month', d)
date_part('epoch', ts)
date_part('dow', d)
date_part('hour', interval '3 hours')
age(timestamp '2024-02-29', timestamp '2000-01-31')
age(timestamptz '2026-01-31 13:45:00+00', ts)
age(date '2024-03-01', d)
age(ts, timestamptz '2000-01-01 00:00:00+00')
ts AT TIME ZONE 'UTC'
ts AT TIME ZONE 'America/New_York'
ts AT TIME ZONE 'Europe/Berlin'
ts AT TIME ZONE '+02'
ts AT TIME ZONE 'Nowhere/Land'
timestamp '2024-02-29 12:00' AT TIME ZONE 'America/New_York'
timestamp '2024-03-31 02:30' AT TIME ZONE 'Europe/Berlin'
timezone('UTC', ts)
ts AT LOCAL
make_date(2024, 2, 29)
make_date(2023, 2, 29)
make_date(k + 2000, k, k)
make_time(10, 30, 15.5)
make_timestamp(2024, 2, 29, 10, 30, 15.5)
make_timestamptz(2024, 2, 29, 10, 30, 15.5)
make_timestamptz(2024, 2, 29, 10, 30, 15.5, 'Europe/Berlin')
to_timestamp(0)
to_timestamp(1700000000.5)
to_timestamp(k)
to_timestamp('2024-02-29 10:30', 'YYYY-MM-DD HH24:MI')
to_date('2024-02-29', 'YYYY-MM-DD')
to_date('29.02.2024', 'DD.MM.YYYY')
to_date('29 Feb 2024', 'DD Mon YYYY')
to_date('2023-02-30', 'YYYY-MM-DD')
to_char(ts, 'YYYY-MM-DD')
to_char(ts, 'YYYY-MM-DD HH24:MI:SS')
to_char(ts, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
to_char(ts, 'DD.MM.YY')
to_char(ts, 'Mon DD, YYYY')
to_char(ts, 'FMMonth FMDD')
to_char(ts, 'Month')
to_char(ts, 'Day')
to_char(ts, 'Dy')
to_char(ts, 'HH12:MI AM')
to_char(ts, 'IYYY-IW')
to_char(ts, 'Q')
to_char(ts, 'DDD')
to_char(ts, 'D')
to_char(ts, 'US')
to_char(ts, 'TZ')
to_char(d, 'YYYY-MM')
to_char(d, 'DD/MM/YYYY')
to_char(d, 'YYYY')
to_char(interval '1 day 02:03:04', 'DD HH24:MI:SS')
now() > timestamptz '2020-01-01 00:00:00+00'
now() - interval '1 day' < now()
now() = now()
current_timestamp > timestamptz '2020-01-01 00:00:00+00'
current_date > date '2020-01-01'
current_date - current_date
localtimestamp > timestamp '2020-01-01'
current_time IS NOT NULL
transaction_timestamp() = now()
statement_timestamp() >= now()
clock_timestamp() >= now()
now()::date = current_date
current_timestamp = now()
date 'today' = current_date
'now'::timestamptz <= clock_timestamp()
d = current_date
ts < now()
date_bin('15 minutes', ts, timestamptz '2001-01-01 00:00:00+00')
date_bin('1 day', timestamp '2024-02-29 12:34:56', timestamp '2001-01-01')
date_add(ts, interval '1 day')
date_subtract(ts, interval '1 day')
isfinite(ts)
isfinite(date 'infinity')
date 'infinity' > d
d::timestamptz + interval '2 hours'
(d + interval '1 day')::date
(date_trunc('month', d) + interval '1 month - 1 day')::date
(date_trunc('month', ts) + interval '1 month' - interval '1 day')::date
ts::date - d
ts::date = d
time '10:30' + interval '45 minutes'
time '23:30' + interval '45 minutes'
time '10:30' - time '09:00'
time '10:30' < time '11:00'
d > ts - interval '1 year'
ts BETWEEN '2024-01-01' AND '2024-12-31'
greatest(ts, '2024-01-01')
least(d, date '2000-01-01')
ts + make_interval(hours => k)
ts + (k || ' days')::interval
extract(epoch FROM (timestamp '2024-03-01' - timestamp '2024-02-01')) / 86400
round(extract(epoch FROM ts))
extract(year FROM age(date '2026-01-31', d))
-- The first and the last days that Python, DuckDB and Spark agree on, and beyond
date '0001-01-01'
date '9999-12-31'
date '0001-01-01' - 1
date '9999-12-31' + 1
date '9999-12-31' + interval '1 month'
date '9999-12-31' - date '0001-01-01'
timestamptz '0001-01-01 00:00:00+00'
timestamptz '9999-12-31 23:59:59.999999+00'
timestamptz '9999-12-31 23:59:59+00' + interval '1 second'
timestamptz '0001-01-01 00:00:00+00' - interval '1 day'
extract(epoch FROM timestamptz '9999-12-31 23:59:59.999999+00')
date '5874898-01-01'
'2026-01-31T10:00:00Z'::timestamptz
'2026-01-31 10:00:00.123456789+02:00'::timestamptz
'20260131'::date
'20260131T104500'::timestamp
'Jan 31 2026'::date
'January 31, 2026 10:15 PM'::timestamp
'31-Jan-2026'::date
'1/31/2026'::date
'31/1/2026'::date
'2026-1-5 7:08'::timestamp
'2026-01-31 10:00 Europe/Berlin'::timestamptz
'2026-07-31 10:00 America/New_York'::timestamptz
'2026-01-31 10:00 EST'::timestamptz
'2026-01-31 10:00:00-0530'::timestamptz
'2026-01-31 24:00:00'::timestamp
'2026-01-31 23:59:60'::timestamp
'2026-02-29'::date
'2026-13-01'::date
'2026-01'::date
'epoch'::timestamptz
'tomorrow'::date - 'yesterday'::date
'10:15 PM'::time
'101530'::time
' 2026-01-31 '::date
'1 year 2 months'::interval
'P1Y2M3DT4H5M6.5S'::interval
'PT36H'::interval
'P2W'::interval
'3 4:05:06'::interval
'@ 1 minute ago'::interval
'-1:30'::interval
'1.5 weeks'::interval
'1.75 years'::interval
'2 fortnights'::interval
'5'::interval
interval '5' day
interval '2' hour
interval '1-3' year to month
interval '1 2:03' day to minute
interval '2:03' minute to second
interval '1 day 02:03:04.5678' second(2)
(ts - timestamptz '2020-01-01 00:00:00+00')::interval day
ts::timestamptz(0)
ts::timestamp(3)
localtimestamp(0) <= localtimestamp + interval '1 second'
(d::text)::date
(ts::text)::timestamptz
((d - 100)::text || ' 10:30')::timestamp
(k::text || ' hours')::interval
date_trunc('month', ts) - interval '1 second'
date_trunc('hour', ts, 'Asia/Kolkata')
date_trunc('week', ts, 'Europe/Berlin')
date_trunc('quarter', ts) + interval '3 months'
date_trunc('millennium', ts)
date_trunc('hours', ts)
date_trunc('day', ts AT TIME ZONE 'Europe/Berlin') AT TIME ZONE 'Europe/Berlin'
extract(second FROM ts) * 1000
extract(julian FROM ts)
extract(timezone_hour FROM ts)
extract(week FROM interval '30 days')
extract(quarter FROM interval '7 months')
extract(decade FROM d)
extract(hour FROM ts AT TIME ZONE 'Asia/Tokyo')
extract(epoch FROM interval '1 year 1 month 1 day 1.5 seconds')
extract(seconds FROM time '10:20:30.25')
extract(day FROM time '10:20')
date_part('second', ts)
date_part('week', d)
date_part('julian', ts)
date_part('epoch', interval '-1 mon 3 days')
date_part('hour', d)
age(d, date '2000-02-29')
age(timestamp '2024-03-31', timestamp '2024-02-29')
age(timestamp '2024-02-29', timestamp '2024-03-31')
age(now()) < interval '2 days'
ts AT TIME ZONE 'UTC' = ts::timestamp
ts AT TIME ZONE interval '-03:30'
timestamp '2024-10-27 02:30' AT TIME ZONE 'Europe/Berlin'
timestamp '2024-11-03 01:30' AT TIME ZONE 'America/New_York'
timestamp '2011-12-30 12:00' AT TIME ZONE 'Pacific/Apia'
make_interval(years => 1, mins => 90, secs => 1.25)
make_interval(1, 2, 3, 4, 5, 6, 7.5)
make_date(month => 2, day => 28, year => 2025)
make_time(24, 0, 0.1)
make_timestamp(2024, 2, 30, 0, 0, 0)
to_timestamp(-0.5)
to_timestamp('31.12.2024 11:59 PM', 'DD.MM.YYYY HH12:MI AM')
to_timestamp('20240229101530', 'YYYYMMDDHH24MISS')
to_timestamp('2024-02-29 10:15:30.25', 'YYYY-MM-DD HH24:MI:SS.MS')
to_date('5 January 99', 'DD Month YY')
to_date('2024-366', 'YYYY-DDD')
to_date('2024/2/9', 'YYYY-MM-DD')
to_date('24-13-01', 'YY-MM-DD')
to_date(to_char(d, 'YYYYMMDD'), 'YYYYMMDD')
to_char(ts, 'FMDD. FMMonth YYYY, HH24"h"MI')
to_char(ts, 'DDth Mon')
to_char(ts, 'HH12:MI:SS.US p.m.')
to_char(ts, 'WW W IYYY-"W"IW-ID')
to_char(ts, 'J CC RM')
to_char(ts, 'Y,YYY YYY YY Y')
to_char(ts, 'SSSS')
to_char(ts, 'OF TZ')
to_char(d, 'DY, DD MON')
to_char(d, 'dy day month')
to_char(ts AT TIME ZONE 'Europe/Berlin', 'YYYY-MM-DD HH24:MI TZ')
to_char(interval '100 hours 5 minutes', 'HH24:MI')
to_char(d, '100% "YYYY" YYYY')
date_bin('1 hour 30 minutes', ts, timestamptz '2000-01-01 00:10:00+00')
date_bin('1 month', ts, ts)
date_bin('-1 hour', ts, ts)
interval '1 month' * 0.5
interval '1 year 1 day' / 7
interval '10 days' * -1.25
interval '1 day' / 0
interval '1 mon -1 day' = interval '29 days'
interval '1 mon' > interval '29 days 24:00:00.000001'
justify_interval(interval '1 year 40 days -50 hours')
justify_days(interval '-65 days 3 months')
(ts, ts + interval '1 day') OVERLAPS (timestamptz '2024-02-29 12:00:00+00', interval '1 day')
(date '2024-01-01', date '2024-02-01') OVERLAPS (date '2024-02-01', date '2024-03-01')
(d, NULL) OVERLAPS (date '2024-01-01', date '2025-01-01')
d + time '10:15:30.5'
time '10:00' - interval '11 hours'
interval '25:30'::time
time '10:30'::interval * 3
d::timestamp + interval '1.5 hours'
d < ts
d = timestamp '2024-02-29 00:00'
ts = timestamp '2024-02-29 00:00:00'
ts IN ('2024-02-29', '1970-01-01 00:00:00+00')
d IN (date '2024-02-29', '1970-01-01')
d BETWEEN '2000-01-01' AND '2024-12-31'
CASE WHEN ts > '2024-01-01' THEN ts ELSE d END
coalesce(ts, '2020-01-01')
nullif(d, '1970-01-01')
greatest(interval '1 day', interval '25 hours')
least(ts, now()) <= now()
(now() - ts) > interval '1 day'
isfinite(interval '1 day')
d::text || ' ' || ts::text
(ts - d)::text
(interval '-1 year -2 mons +3 days -04:05:06.7')::text
d - interval '1 day' * k
ts + k * interval '1 hour'
(date '2024-12-31' - d) / 365
'P2.80M'::interval
'P-.5DT1.1H'::interval
'2.80 months'::interval
to_timestamp('20240229458213', 'YYYYMMSSSSDD')
to_date('2024 - 24', 'YYYY - YY')
