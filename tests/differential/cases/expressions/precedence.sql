2 - 3 - 4
2 - (3 - 4)
10 / 4 * 2
10 * 4 / 3
7 % 4 * 2
2 ^ 3 ^ 2
-k % 3
- k ^ 2
2 + k * 3
(2 + k) * 3
1 + 2 || 'a'
'a' || 1 + 2
'a' || 'b' = 'ab'
NOT k = 2
NOT k IS NULL
NOT flag AND flag
NOT flag OR flag
NOT (flag OR flag)
flag OR flag AND false
(flag OR flag) AND false
k = 1 OR k = 2 AND word = 'apple'
1 < 2 = true
1 = 1 IS NULL
k IS NULL = false
(k IS NULL) = false
k > 1 IS TRUE
k BETWEEN 1 AND 3 AND flag
k NOT BETWEEN 1 AND 3 OR flag
k BETWEEN 1 AND 1 + 1
k IN (1, 2) = flag
word LIKE 'a' || '%'
word LIKE 'a%' AND flag
NOT word LIKE 'a%'
word || 'x' LIKE '%x'
word NOT LIKE 'a%' IS TRUE
k & 1 = 1
1 | 2 & 3
k + 1 << 2
1 << 2 + 1
k::text || 'a'
-k::text::int
-1::smallint
- 32768::smallint
-5::int % 3
k * 2::numeric
k::numeric / 3
(k)::text
k - -1
k - - 1
k+-1
k*-1
+ - k
- + k
~k & 7
~ 5 + 1
@ -5 + 2
j ->> 'a' || 'x'
j -> 'b' -> 0 = '1'
j ->> 'a' = '1' AND flag
j -> 'a' IS NOT NULL AND flag
(j -> 'b') -> 0
nums[1] + 1
-nums[1]
nums || 4 || 5
0 || nums || 4
ARRAY[1] || ARRAY[2] = ARRAY[1, 2]
1 = ANY (ARRAY[1]) AND flag
d + 1 - d
d - d + 1
ts - interval '1 day' + interval '1 hour'
d + interval '1 day' > ts
ts AT TIME ZONE 'UTC' + interval '1 hour'
timestamp '2024-01-01 00:00' AT TIME ZONE 'UTC' AT TIME ZONE 'America/New_York'
CASE WHEN flag THEN 1 ELSE 2 END + 1
CASE k WHEN 1 THEN 2 ELSE 3 END = 2
(k, 1) = (1, 1) AND flag
k IS DISTINCT FROM 1 AND flag
k IS DISTINCT FROM 1 + 1
k IS NOT DISTINCT FROM 2 = flag
flag IS NOT TRUE OR NOT flag
flag = flag = flag
1 = 2 = 3
1 < 2 < 3
k = 1 <> flag
'a' < 'b' AND 'b' < 'c'
EXISTS (SELECT 1) AND flag
NOT EXISTS (SELECT 1) OR flag
coalesce(k, 0) + 1 * 2
abs(-k) - 1
