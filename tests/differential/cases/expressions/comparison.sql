k = 2
k <> 2
k != 2
k < 2
k <= 2
k > 2
k >= 2
k = k
n = big
small < n
k = 2.0
price = 10.5
price > k
x > price
y = 1.25
amount = 0
amount = 1.5
rate > 0
k = NULL
NULL = NULL
NULL <> 1
k IS NULL
k IS NOT NULL
k ISNULL
k NOTNULL
k IS DISTINCT FROM 2
k IS NOT DISTINCT FROM NULL
k IS DISTINCT FROM NULL
NULL IS DISTINCT FROM NULL
k BETWEEN 1 AND 2
k NOT BETWEEN 1 AND 2
k BETWEEN 2 AND 1
k BETWEEN SYMMETRIC 3 AND 1
word BETWEEN 'b' AND 'd'
d BETWEEN '1970-01-01' AND '2020-12-31'
price BETWEEN 1 AND 10.50
k IN (1, 2)
k NOT IN (1, 2)
k IN (1, NULL)
k NOT IN (1, NULL)
word IN ('apple', 'fig')
word NOT IN ('apple')
price IN (10.5, 9.99)
k = ANY (ARRAY[1, 2])
k = ALL (ARRAY[1, 2])
k > ALL (ARRAY[0, 1])
k < ANY (ARRAY[0, 2])
k <> ALL ('{1,2}')
k = ANY ('{1,2}'::int[])
'a' = ANY (tags)
'a' <> ALL (tags)
2 < ALL (nums)
t = 'abc'
t = ''
t < 'b'
t > 'Z'
t >= 'é'
t <> 'ABC'
'a' < 'B'
'a' = 'a '
'abc' < 'abcd'
'Z' < 'a'
'é' > 'z'
flag = true
flag <> false
flag
NOT flag
flag IS TRUE
flag IS NOT TRUE
flag IS FALSE
flag IS NOT FALSE
flag IS UNKNOWN
flag IS NOT UNKNOWN
flag = 't'
flag = 'yes'
flag > false
true > false
flag AND k > 1
flag OR k > 1
NOT (flag AND k > 1)
flag AND NULL
flag OR NULL
true AND NULL
false AND NULL
true OR NULL
NOT NULL
flag AND 1 = 1
k > 1 AND k < 4 OR word = 'fig'
NOT k = 1
d = '2024-02-29'
d < '1970-01-01'
d >= date '2000-01-01'
ts = '2024-02-29'
ts < '2000-01-01 00:00:00+00'
ts >= timestamptz '2024-01-01 00:00:00+02'
ts > d
d = ts
u = '6f9619ff-8b86-d011-b42d-00cf4fc964ff'
u < '11111111-1111-1111-1111-111111111111'
u = 'abc'
b = '\x00ff'
b = ''
tags < ARRAY['b']
nums = ARRAY[1, 2]
nums < ARRAY[2]
j = '{}'
j = '{"b": true, "a": "1"}'
j = '{"a": "1", "b": true}'
j <> '[]'
j = '12.5'
(k, word) = (1, 'apple')
(k, word) < (2, 'b')
(k, word) IN ((1, 'apple'), (2, 'Banana'))
ROW(k, 1) = ROW(2, 1)
(k, NULL) IS NULL
(NULL, NULL) IS NULL
(k, price) IS DISTINCT FROM (1, 9.99)
(date '2024-01-01', date '2024-02-01') OVERLAPS (date '2024-01-15', date '2024-03-01')
-- Types that do not go together
k = 'abc'
k = '2'
k = 2 OR word = 1
word = 1
flag = 1
flag AND 1
d = 5
u = 5
t > 5
k = true
'1' = 1
'a' = 1
d = 'yesterday-ish'
ts = 'not a time'
amount = 'abc'
j = 'not json'
nums = 1
tags = 'a'
NOT k
k AND true
t < 'a'
t BETWEEN 'a' AND 'b'
t = 'ABC' COLLATE "C"
'' < ' '
'😀' > '日'
chr(65535) < chr(65536)
t IN ('abc', 'é😀x', NULL)
t NOT IN ('abc', 'ABC')
t <> ''
t IS DISTINCT FROM 'abc'
greatest(t, 'b', word)
least(t, word)
nullif(t, '')
coalesce(nullif(word, 'apple'), 'none')
'a '::char(2) = 'a'
'a '::char(2) = 'a '::text
'a'::char(1) < 'b'::char(3)
'a'::char(3) IN ('a', 'b')
'ab'::char(2) || 'c' = 'abc'
t ~<~ 'b'
flag = (t = 'abc')
(t = 'abc') < (k = 1)
b = 'abc'
u > u
CASE t WHEN 'abc' THEN 1 WHEN '' THEN 0 END
t::name = word::name
t::name < 'b'
t::name = t
word = word::name
-- Numbers of different types
k = price
k < y
small = n
big > n
small < big
big = x
price = y
price > y
amount = rate
amount <> rate
rate < 1
n = 2147483647.0
big = 9223372036854775807.0
big < 9223372036854775807.5
9007199254740993 = 9007199254740992::double precision
9007199254740993::bigint::double precision = 9007199254740993
0.1 = 0.1::double precision
0.1::real = 0.1
0.1::real = 0.1::double precision
0.5::real = 0.5::double precision
1.0 = 1.00
price / 3 = price / 3
price / 2 < price
price / k >= 5
price / k = price
(price / k) IN (9.99, 5.25)
price / k BETWEEN 1 AND 10
price / 3 IS DISTINCT FROM price / 3.00
1.50 IS NOT DISTINCT FROM 1.5
k IN (1.0, 2.5)
k IN (1, 2.0, 3::bigint)
y IN (1, 0.5)
price IN (10.5, 100)
k = ANY (ARRAY[1.0, 2.50])
price > ALL (ARRAY[1, 2.5])
'NaN'::double precision = 'NaN'::real
'NaN'::double precision > 'Infinity'
'NaN'::numeric = 'NaN'::numeric
'NaN'::numeric > 1e100
'-Infinity'::numeric < rate
x < 'NaN'::double precision
x = 5e-324
-0.0::double precision = 0
12345678901234567890123456789012345678 > rate
12345678901234567890123456789012345678.5 = 12345678901234567890123456789012345678.50
(k, price) < (2, 10.0)
(k, y) = (1.0, 0.5)
price IS DISTINCT FROM NULL::numeric
price IS NOT DISTINCT FROM (price / 1)
NULL::numeric IS DISTINCT FROM rate
(price / 3) IS DISTINCT FROM (price / 3)
