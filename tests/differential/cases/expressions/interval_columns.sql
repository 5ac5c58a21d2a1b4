-- A column of interval.
span
span + interval '1 day'
span - interval '02:00'
span * 2
span * 0.5
span / 3
-span
ts + span
ts - span
d + span
span + d
span = '1 day'
span = interval '30 days'
span <> '24:00'
span < '1 mon'
span >= '1 year'
span BETWEEN '1 hour' AND '1 mon'
span IN ('1 day', '0')
span NOT IN ('1 day', '0')
span IS NULL
span IS NOT NULL
span IS DISTINCT FROM '30 days'
span = ANY (ARRAY[interval '1 day', interval '1 mon'])
span::text
span::text || '!'
span::time
span::interval
span::jsonb
to_jsonb(span)
extract(epoch FROM span)
extract(month FROM span)
extract(hour FROM span)
date_part('day', span)
date_trunc('month', span)
justify_days(span)
justify_hours(span)
justify_interval(span)
to_char(span, 'DD HH24:MI:SS')
coalesce(span, interval '1 hour')
nullif(span, '1 day')
greatest(span, '1 day')
least(span, interval '1 mon')
CASE WHEN span > '1 day' THEN span ELSE '0' END
ARRAY[span, '1 day']
concat(span, 'x')
format('%s', span)
pg_typeof(span)
isfinite(span)
span > '1 day' AND word = 'apple'
NOT span > '1 day'
(ts + span) > '2024-03-01'
age(ts, ts - span) = span
length(span::text)
interval '1 day' * k > span
span::int4
span + 1
