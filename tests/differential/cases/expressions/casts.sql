1.5::int
2.5::int
-1.5::int
-2.5::int
CAST(1.5 AS INT)
CAST('42' AS INTEGER)
'42'::int
' 42 '::int
'4 2'::int
''::int
'abc'::int
'1.5'::int
'1e3'::int
'99999999999'::int
'0x1A'::int
'1_000'::int
int '5'
'12'::smallint
'40000'::smallint
n::smallint
n::bigint
big::int
small::int
k::smallint
k::text
n::text
big::text
small::text
x::text
y::text
1e20::double precision::text
1e15::double precision::text
1e16::double precision::text
0.00001::double precision::text
1e-7::double precision::text
0.1::double precision::text
100::double precision::text
amount::text
rate::text
price::text
price::int
price::bigint
price::double precision
price::numeric
price::numeric(10, 1)
price::numeric(3, 2)
price::numeric(5)
amount::int
amount::numeric(12, 4)
y::int
x::int
x::bigint
y::numeric
y::numeric(10, 2)
y::decimal(6, 1)
0.1::double precision::numeric
1e20::double precision::numeric
k::numeric
k::numeric(5, 2)
k::decimal(10, 3)
k::real
1.1::real
1.1::real::double precision
16777217::real
'1.5'::numeric
'1.50'::numeric
'1.505'::numeric(5, 2)
'-1.505'::numeric(5, 2)
'12345.678'::numeric(5, 2)
'NaN'::numeric
'Infinity'::numeric
'1e3'::numeric
' 1.5 '::numeric
'abc'::numeric
'1.5'::double precision
'1e400'::double precision
'inf'::double precision
'nan'::double precision::text
''::double precision
flag::text
flag::int
k::boolean
0::boolean
2::boolean
'true'::boolean
't'::boolean
'yes'::boolean
'on'::boolean
'1'::boolean
'off'::boolean
'tr'::boolean
'TRUE'::boolean
' true '::boolean
'maybe'::boolean
''::boolean
bool 'f'
flag::bigint
y::boolean
t::text
t::varchar
word::varchar(3)
word::char(3)
CAST(word AS varchar(4))
'abc'::text::varchar(1)
k::varchar
d::text
ts::text
d::timestamp
d::timestamptz
ts::date
ts::time
ts::timestamp
ts::timestamptz
'2024-02-29'::date
'2023-02-29'::date
'2024-2-9'::date
'20240229'::date
'Feb 29, 2024'::date
'29 Feb 2024'::date
'2024-02-29 10:00'::date
'infinity'::date
'epoch'::date
'0044-03-15 BC'::date
'2024-13-01'::date
'abc'::date
''::date
date '2024-02-29'
'2024-02-29 10:00'::timestamp
'2024-02-29T10:00:00Z'::timestamptz
'2024-02-29 10:00:00+02'::timestamptz
'2024-02-29 10:00:00.123456789'::timestamp
'2024-02-29 24:00:00'::timestamp
'2024-02-29 25:00:00'::timestamp
'2024-02-29'::timestamp
timestamp '2024-02-29 10:00:00'
timestamptz '2024-02-29 10:00:00-08'
'10:30'::time
'10:30:15.5'::time
'25:00'::time
'1 day'::interval
'1 day 2 hours'::interval
'P1Y2M3DT4H5M6S'::interval
'1-2'::interval
'abc'::interval
'6f9619ff-8b86-d011-b42d-00cf4fc964ff'::uuid
'6F9619FF8B86D011B42D00CF4FC964FF'::uuid
'{6f9619ff-8b86-d011-b42d-00cf4fc964ff}'::uuid
'6f9619ff'::uuid
'\x00ff'::bytea
'abc'::bytea
'abc\\def'::bytea
'\101'::bytea
'{"a": 1}'::json
'{"a": 1}'::jsonb
'{"b": 1, "a": 2, "b": 3}'::jsonb
'{"b": 1, "a": 2, "b": 3}'::json
'{a: 1}'::jsonb
'1.50'::jsonb
'1e3'::jsonb
'"a"'::jsonb
'null'::jsonb
''::jsonb
'[1, 2'::jsonb
j::text
'{"b":1,"a":[1,2]}'::jsonb::text
'{"b":1,  "a":2}'::json::text
'5'::jsonb::int
'5.7'::jsonb::int
'true'::jsonb::boolean
'"a"'::jsonb::int
'"5"'::jsonb::int
'{1,2,3}'::int[]
'{1,NULL,3}'::int[]
'{}'::int[]
'{a,"b c",NULL}'::text[]
'{{1,2},{3,4}}'::int[]
'{1,a}'::int[]
NULL::int
NULL::text
NULL
CAST(NULL AS numeric(5, 2))
t::int
t::numeric
t::date
k::date
d::int
ts::int
u::int
flag::numeric
k::uuid
65::"char"
k::int4
k::int8
k::int2
y::float8
y::float4
y::float
price::decimal
word::string
word::blob
TRY_CAST('a' AS INT)
CAST(k AS unknown_type)
pg_typeof(1)::text
pg_typeof(1.5)::text
pg_typeof('a')::text
pg_typeof(k)::text
pg_typeof(price)::text
pg_typeof(y)::text
pg_typeof(ts)::text
pg_typeof(d)::text
pg_typeof(j)::text
pg_typeof(tags)::text
pg_typeof(NULL)::text
pg_typeof(k / 2)::text
pg_typeof(k / 2.0)::text
pg_typeof(now())::text
pg_typeof(d - d)::text
pg_typeof(ts - ts)::text
pg_typeof(d + 1)::text
t::boolean
(t || '')::boolean
' yes '::text::boolean
'o'::text::bool
'of'::text::bool
'TRUE'::varchar::bool
flag::varchar(2)
flag::char(6) || '|'
k::bool
(x * 0)::text
1e15::float8::text
123456789012345678::float8::text
1e-5::float8::text
0.0001::float8::text
'-Infinity'::float8::text
'NaN'::float8::text
1234567::float4::text
0.1::float4::text
1e10::float4::text
1.0::float8::text
(-1.5e300)::float8::text
(-0.0)::float8::text
rate::varchar(4)
(price * 1.10)::text
u::varchar(8)
ARRAY['a b', '', NULL, 'NULL', 'null', 'a"b', 'c\d', '{x}', 'a,b', E'\t']::text
ARRAY[1.5, NULL]::text
ARRAY[d]::text
ARRAY[u]::text
k::char(3) || '|'
k::varchar(0)
'abc'::varchar(10)
'abcdef'::text::varchar(3)
'abcdef'::char(3)
'ab'::char(4)::varchar || '|'
'ab'::char(4)::char(2)
('ab' || k)::char
t::name
repeat('é', 40)::name
interval '1 day'::text
time '10:30'::text
time '10:30:00.120'::text
(interval '1 year -2 months 3 days -04:05:06.7')::text
('2024-01-01'::timestamp)::text
-- Numbers
'  -12  '::smallint
E'\t7\n'::bigint
'+7'::integer
'1_000'::integer
'1__000'::integer
'0x1F'::integer
'-0b101'::integer
'0o17'::bigint
'12.0'::integer
'1e3'::integer
'٣'::integer
'32768'::smallint
'-32769'::smallint
'9223372036854775807'::bigint
'9223372036854775808'::bigint
t::smallint
t::bigint
t::double precision
t::real
t::numeric(10, 1)
k::text::integer
k::text::numeric
amount::text::numeric(12, 3)
y::text::double precision
x::text::numeric
big::text::smallint
big::integer
big::smallint
big::real
big::double precision
n::real
small::numeric
small::real::text
n::numeric(8, 2)
k::numeric(3, 2)
big::numeric(19, 0)
big::numeric(30, 5)
x::smallint
x::real
x::numeric
x::numeric(20, 3)
y::smallint
y::bigint
y::real
y::real::numeric
y::real::text
y::numeric(4, 1)
y::numeric(3, 0)
0.5::double precision::integer
1.5::double precision::integer
2147483647.5::double precision::integer
'-2147483648.5'::double precision::integer
9223372036854775807::double precision::bigint
'NaN'::double precision::integer
'Infinity'::double precision::numeric
'NaN'::real::text
'-Infinity'::real::text
1e23::double precision::text
123456789012345680::double precision::text
1e-5::real::text
1234567::real::text
123456::real::text
0.1::real::numeric
1.1e10::real::text
'1e39'::real
'1e-46'::real
'1e-400'::double precision
' inf '::double precision
'1,5'::double precision
'0x1p3'::double precision
3.4e38::double precision::real
1e39::double precision::real
1e-50::double precision::real
amount::numeric(8, 2)
amount::numeric(9, 1)
rate::numeric(20, 2)
rate::numeric(38, 18)
rate::numeric(50, 20)
rate::integer
rate::bigint
rate::double precision
rate::real
amount::smallint
amount::real
(price / 3)::integer
(price / 3)::bigint
(price / 3)::double precision
(price / 3)::real
(price / 3)::numeric(6, 2)
(price / 3)::numeric(60, 30)
(price / 3)::text
(price / 3)::varchar(6)
0.5::text
-0.05::text
.5::numeric(2, 2)::text
1e5::text
1e-7::text
12345678901234567890.1234567890::text
123.456::numeric(5, -1)
123.456::numeric(2, 4)
0.001234::numeric(3, 5)
99.995::numeric(4, 2)
-99.995::numeric(4, 2)
'NaN'::numeric::integer
'Infinity'::numeric::double precision
'1e1000'::numeric::double precision
'  12.50 '::numeric
'1_0.5'::numeric
'0x1F'::numeric
'.'::numeric
'1e'::numeric
'-.5e1'::numeric
true::integer
flag::integer + 1
(-1)::boolean
k::bigint::boolean
' TRUE '::boolean
'f'::boolean
'y'::boolean
'offf'::boolean
'2'::boolean
k::varchar(1)
x::varchar(4)
price::char(8)
(to_char(ts, 'YYYY-MM-DD') || ' 24:00:00')::date
(to_char(ts, 'YYYY-MM-DD') || ' 24:00:00')::timestamp
(to_char(ts, 'YYYY-MM-DD"T"HH24:MI:SS') || 'Z')::timestamptz
(to_char(ts, 'YYYY-MM-DD HH24:MI:SS.US') || '+02:00')::timestamptz
to_char(ts, 'Mon DD YYYY HH12:MI:SS AM')::timestamp
to_char(ts, 'DD Mon YYYY')::date
to_char(ts, 'HH24:MI:SS.US')::time
('000' || k::text || '-01-01')::date
(k::text || ' days ' || k::text || ':30')::interval
('P' || k::text || 'D')::interval
(ts - d)::text::interval
word::timestamp
d::text::timestamptz::date
9007199791611905::bigint::real
-9007199791611905::bigint::real
16777217.0000000000001::real
'16777217.0000000000001'::real
(t || '')::real
('16777217.0000000000001' || '')::real
('1e999999999999999999999' || '')::real
('1e-999999999999999999999' || '')::real
'1e-45'::real
'0x1.000001000000001p+24'::real
(9000000000 + k)::real
