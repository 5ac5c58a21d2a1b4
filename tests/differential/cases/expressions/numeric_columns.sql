-- A column of numeric without digits: each value has a scale of its own, and some are no numbers.
free
free + 1
free - amount
free * free
free * 0.10
free / 3
free / nullif(n, 0)
free % 2
-free
+free
abs(free)
sign(free)
ceil(free)
floor(free)
round(free)
round(free, 3)
trunc(free, 1)
scale(free)
min_scale(free)
trim_scale(free)
sqrt(abs(free))
power(free, 2)
free = 1.5
free = 1.500
free <> 1.5
free < amount
free <= 0
free > 'Infinity'
free >= 'NaN'
free = x
free < x
free + x
free IN (1.5, 0, 'NaN')
free NOT IN (1.5, 0)
free BETWEEN -1 AND 1.50
free IS NULL
free IS NOT NULL
free IS DISTINCT FROM 1.5
free = ANY (ARRAY[1.5, 0])
free::text
free::text || '!'
free::numeric(12, 2)
free::numeric(60, 5)
free::numeric(5, -1)
free::int4
free::int8
free::float8
free::float4
free::bool
free::jsonb
free::date
to_jsonb(free)
jsonb_build_object('a', free)
to_char(free, 'FM999990.00')
coalesce(free, 0)
coalesce(free, amount, 1)
nullif(free, 1.5)
greatest(free, 1.5)
least(free, amount)
CASE WHEN free > 0 THEN free ELSE amount END
CASE WHEN k = 1 THEN free END
ARRAY[free, 1]
ARRAY[free, amount]
concat(free, 'x')
format('%s', free)
pg_typeof(free)
width_bucket(free, 0, 10, 5)
div(free, 2)
mod(free, 7)
gcd(trunc(coalesce(nullif(free, 'NaN'), 4)), 6)
free > 0 AND word = 'apple'
word = 'apple' OR free > 1
NOT free > 0
n + free
big * free
free::text LIKE '1%'
length(free::text)
free::numeric
(free + 1)::numeric(10, 1)
extract(year FROM d) + free
free ^ 2
free || ''
