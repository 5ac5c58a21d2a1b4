-- Whole numbers
1 + 1
n + 1
n - 1
n * 2
k + 1
k * k
k - 10
-k
-n
+k
- - k
small + 1
small + small
small * 2
-small
big + 1
big - 1
big * 2
-big
n + big
small + n
small * big
k / 2
7 / 2
-7 / 2
7 / -2
k / 0
1 / 0
k % 2
-7 % 3
7 % -3
n % 10
big % 10
big / 3
n / -1
big / -1
small / 2
k % 0
2147483647 + 1
2147483647 * 2
9223372036854775807 + 1
9223372036854775807 + id
-9223372036854775808
9223372036854775808
-2147483648
2147483648
100000 * 100000
10000000000 * 3
32767::smallint + 1::smallint
2 ^ 10
2 ^ 0.5
k ^ 2
(-8) ^ 3
-2 ^ 2
0 ^ 0
5 & 3
k & 1
k | 8
k # 3
~k
1 << 4
k << 2
256 >> 3
-1 >> 1
|/ 16.0
||/ 27.0
@ -5
@ k
abs(-5)
abs(n)
abs(k)
abs(x)
abs(amount)
abs(small)
5 % 3 + 2 * 4 - 1
(5 + 3) * 2
2 + 3 * 4 ^ 2
-5 % 3
1 + k * 2 - 3 / 2
-- Decimals
1.5 + 2
1.5 * 1.5
1.10 + 2.205
0.1 + 0.2
10.0 / 3
1 / 3.0
1.0 / 3
7.0 / 2
2.0 / 3.0
100.00 / 7
1e10 / 3.0
0.000001 / 3
price + 1
price - 0.01
price * 2
price * price
price / 2
price / 3
price / k
price % 3
price + k
price * k
-price
amount + amount
amount * 100
amount / 7
amount + x
rate * 2
rate + amount
rate / 3
rate * rate
price * 1.075
price * 0.1
5.5 % 2
-5.5 % 2
price / 0
5.0 / 0
1.0 % 0
99999999.99 + amount
-- Doubles
x + 1
x * 2
x / 2
y + 1
y * 2
y / 3
y - k
y * price
y + 0.1
-x
-y
x - x
x / 0
y / 0
1.0::double precision / 3
0.1::double precision + 0.2::double precision
1e308 * 10
1e308::double precision * 10
2::double precision ^ 0.5
7.5::double precision / 2
1e-320::double precision
'NaN'::double precision
'Infinity'::double precision
'-Infinity'::double precision
'NaN'::double precision = 'NaN'::double precision
'NaN'::double precision > 1
'Infinity'::double precision - 'Infinity'::double precision
k::double precision
y = 0.5
y > 1
x = 0
-0.0::double precision
1.5e3
1.5e-3
.5
5.
1_000_000
0x1F
0b101
0o17
-12345678901234.123456
12345678901234567890.123456789
0.1 * 3
-- The limits of whole numbers
-(-32768)::smallint
-('-2147483648'::integer)
-('-9223372036854775808'::bigint)
-2147483649
-9223372036854775809
-(2147483648)
- -2147483648
small - 32767::smallint
small * small
n * big
big * n
n / small
big % small
small % n
(-32768)::smallint / (-1)::smallint
(-32768)::smallint % (-1)::smallint
n % -1
big % -1
k / (k - 2)
k % (k - 2)
abs((-32768)::smallint)
abs('-2147483648'::integer)
@ (-2.5)
@ y
@ small
0xFFFFFFFF
0x7FFFFFFFFFFFFFFF
0x8000000000000000
1_000_000_000_000
-- Bits
n & 255
n | small
big # 255
~big
~small
small << 1
small << 15
small >> 2
n << 31
n << 32
n << 33
n << -1
n >> 31
n >> -1
big << 63
big << 64
big >> 63
big >> 1
(-1) << 4
-- Numerics of many digits
rate * rate * rate
rate * rate * rate * rate
amount * amount
amount * amount * amount
rate / amount
amount / rate
(price / 3) + 1
(price / 3) * (price / 7)
(price / 3) - (price / 7)
(price / k) % 2
-(price / 3)
12345678901234567890123456789012345678 + 1
12345678901234567890123456789012345678 * 12345678901234567890123456789012345678
99999999999999999999999999999999999999 + 0.1
1e100 / 3
1 / 1e100
1e-100 * 1e-100
0.5 + 0.50
0.5 - 0.5
-0.0
-0.5
1.50 * 0
price % 0.7
amount % rate
rate % 0
-7.5 % 2
0 / 3.0
price ^ 2
price ^ 0.5
2.0 ^ 100
2.0 ^ -3
0.0 ^ 0
10 ^ -2.0
(-2.5) ^ 3
'NaN'::numeric + 1
'Infinity'::numeric * -1
'Infinity'::numeric - 'Infinity'::numeric
1 / 'Infinity'::numeric
'Infinity'::numeric % 2
-'Infinity'::numeric
-'NaN'::numeric
-- Floats
y::real + 1
y::real * y
y::real / 3
-(y::real)
1::real / 3
1::real / 3::double precision
16777216::real + 1
3e38::real * 10
1e-30::real * 1e-30::real
1e308::double precision + 1e308::double precision
1e-200::double precision * 1e-200::double precision
1e-200::double precision / 1e200::double precision
1e200::double precision / 1e-200::double precision
x + x
x * x
x / x
0::double precision / 0
'NaN'::double precision / 0
'Infinity'::double precision / 'Infinity'::double precision
'Infinity'::double precision * 0
y ^ 2
y ^ 0.5
(-8)::double precision ^ (1::double precision / 3)
0::double precision ^ -1
(y + 1) * (y + 2) * (y + 3) * (y + 4) * (y + 5) * (y + 6) * (y + 7) * (y + 8)
((((((((y + 1) / 2) - 3) * 4) + 5) / 6) - 7) * 8) / 9
