k + '1'
'1' + k
'1' + '2'
k + '1.5'
price + '1.5'
price + '1'
y + '1'
k || ''
k * '2'
'3' * 2.5
'10' / 4
10 / '4'
'7' % 2
-'5'
- '5.5'
'5' = 5
5 = '5'
5 = ' 5 '
5.0 = '5'
5 = '5.0'
5.5 = '5.5'
k IN ('1', '2')
k IN (1, '2')
k IN (1, 2.5)
k BETWEEN '1' AND '3'
price IN ('9.99')
price > '5'
y > '1'
small = '7'
big = '42'
big = 42.0
small = 7.0
small + 1.5
big + 1.5
big * 1.5::double precision
n + 1.0
k + y
k + price
price + y
small + y
k = y
price = 10.5::double precision
0.3 = 0.1 + 0.2
0.3::double precision = 0.1::double precision + 0.2::double precision
1 = 1.0
1 = 1.0::double precision
'a' || 1
1 || 'a'
1 || '1'
'a' || 1.50
'a' || true
'a' || NULL || 'b'
'a' || d
'a' || ARRAY['b']
ARRAY['a'] || 'b'::text
word || t
d > '1999-12-31'
'2024-02-29' = d
d + '1'
d - '2024-01-01'
'2024-03-01' - d
d + '1 day'
ts + '1 day'
ts - '1 day'
ts - '2024-01-01'
ts > '2024-01-01'
ts = d
ts > date '2024-01-01'
ts > timestamp '2024-01-01 00:00:00'
d = timestamp '2024-02-29 00:00:00'
flag = 'true'
flag AND 'true'
flag OR 'no'
NOT 'true'
flag IN ('t', 'f')
u IN ('6f9619ff-8b86-d011-b42d-00cf4fc964ff')
u::text = '6f9619ff-8b86-d011-b42d-00cf4fc964ff'
b IN ('\x00ff', '\x')
tags = '{a,abc}'
nums @> '{1}'
nums || '{7,8}'
1 = ANY ('{1,2}')
'1' = ANY (nums)
coalesce(k, 1.5)
coalesce('1', k)
coalesce(NULL, '1', 2)
coalesce(small, 1)
coalesce(k, big)
coalesce(d, ts)
greatest(k, 2.5)
greatest('10', 9)
greatest('10', '9')
least(k, y)
nullif(k, '1')
nullif('1', k)
CASE WHEN flag THEN k ELSE '0' END
CASE WHEN flag THEN '1' ELSE '2' END
CASE k WHEN '1' THEN 'a' ELSE 'b' END
CASE '1' WHEN k THEN 'a' ELSE 'b' END
ARRAY[1, 2.5, '3']
ARRAY[k, y]
abs('-5')
round('2.567', 2)
round('2.5')
length('abc')
upper('abc')
sqrt('4')
power('2', 3)
substring('abc', '2')
left('abc', '2')
repeat('a', '3')
lpad('5', '3', '0')
date_trunc('month', '2024-02-29')
date_trunc('month', timestamp '2024-02-29 10:00')
extract(year FROM '2024-02-29')
extract(year FROM date '2024-02-29')
age('2024-02-29', '2000-01-01')
to_char('2024-02-29'::date, 'YYYY')
make_date('2024', '2', '29')
mod('7', 3)
concat(1, 'a', true, NULL, 1.50)
k = 1::bigint
k = 1::smallint
k::bigint = small
price::double precision = 9.99
9.99::double precision = price
true = 't'
true::text || 'x'
1::boolean
't'::boolean AND flag
