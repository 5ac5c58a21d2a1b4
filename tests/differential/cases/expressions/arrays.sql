ARRAY[1, 2, 3]
ARRAY['a', 'b']
ARRAY[k, 2]
ARRAY[1, 2.5]
ARRAY[1, NULL]
ARRAY[[1, 2], [3, 4]]
ARRAY[]::int[]
ARRAY[]
nums[1]
nums[2]
nums[0]
nums[-1]
nums[10]
tags[1]
nums[1:2]
nums[2:]
nums[:1]
(ARRAY[1, 2, 3])[2]
(ARRAY[1, 2, 3])[2:3]
(ARRAY[[1, 2], [3, 4]])[2][1]
nums[k]
array_length(nums, 1)
array_length(tags, 1)
array_length(ARRAY[]::int[], 1)
array_length(nums, 2)
cardinality(nums)
cardinality(ARRAY[]::text[])
array_upper(nums, 1)
array_lower(nums, 1)
array_ndims(nums)
array_dims(nums)
array_append(nums, 9)
array_append(NULL::int[], 1)
array_prepend(0, nums)
array_cat(nums, ARRAY[7, 8])
nums || 9
0 || nums
nums || ARRAY[7]
nums || NULL
nums || '{9}'
tags || 'z'
tags || ARRAY['z']
array_remove(nums, 1)
array_remove(ARRAY[1, NULL, 2], NULL)
array_replace(nums, 1, 100)
array_position(nums, 2)
array_position(tags, 'zzz')
array_position(ARRAY[1, NULL], NULL)
array_positions(ARRAY[1, 2, 1], 1)
nums @> ARRAY[1]
nums @> ARRAY[1, 2]
nums <@ ARRAY[1, 2, 3]
nums && ARRAY[1, 9]
tags @> ARRAY['a']
tags && ARRAY['a', 'x']
ARRAY[]::int[] <@ nums
nums @> ARRAY[NULL]::int[]
nums = ARRAY[3, 1, 2]
nums > ARRAY[1]
array_sort(nums)
array_reverse(nums)
trim_array(nums, 1)
array_fill(7, ARRAY[3])
array_to_string(nums, ', ')
array_to_string(ARRAY['a', NULL], ',', '?')
string_to_array('1,2,3', ',')::int[]
'x' = ANY (tags)
NOT ('x' = ANY (tags))
2 = ANY (nums)
5 > ALL (nums)
ARRAY[1, 'a']
ARRAY[1, '2']
ARRAY[d, '2024-01-01']
ARRAY[true, false]
ARRAY[price, k]
ARRAY(SELECT line FROM items ORDER BY order_id, line)
ARRAY(SELECT id FROM nothing)
(SELECT sum(e) FROM unnest(nums) AS e)
(SELECT array_agg(e ORDER BY e) FROM unnest(nums) AS e)
nums IS NULL
tags IS DISTINCT FROM NULL
coalesce(array_length(nums, 1), 0)
unnest(ARRAY[1])
len(nums)
list_contains(nums, 1)
array_contains(nums, 1)
nums::text
tags::text
ARRAY[1.50, 2, NULL]::text
ARRAY[true, false, NULL]::text
ARRAY[d, NULL]::text
ARRAY[ts]::text
ARRAY[x]::text
ARRAY[j]::text
ARRAY[b]::text
ARRAY['a b', '', 'null', 'x"y', E'a\\b', 'é', '{', ',']::text
ARRAY[]::text[]::text
'{a,b}'::text[]
'{ a b , "c" }'::text[]
'{"a\"b\\", NULL, null, "null", nul\l}'::text[]
'{a,}'::text[]
'{,a}'::text[]
'{a, }'::text[]
'{}}'::text[]
'{a"b"}'::text[]
'{"a"b}'::text[]
'{a} x'::text[]
' {1, 2 } '::int[]
'{1,x}'::int[]
'{1.5,2}'::numeric[]
'{1,2}'::bigint[]
'{t,f,NULL}'::boolean[]
'{2024-01-01}'::date[]
'1,2'::int[]
''::int[]
'{{1},{2}}'::int[]
'[2:3]={1,2}'::int[]
('{' || k || ',5}')::int[]
('{' || word || '}')::text[]
tags::text::text[]
nums::text[]
nums::bigint[]
nums::numeric[]
ARRAY[1.5, 2.5]::int[]
ARRAY['1', '2']::int[]
ARRAY[1, 2]::text[]
nums[NULL]
nums[NULL:2]
nums[0:1]
nums[-5:2]
nums[2:1]
nums[3:10]
nums[:]
nums[2:2]
nums[k:]
(nums[1:2])[2]
nums[1] + nums[2]
(ARRAY[price, 1.5])[1]
(string_to_array('a,b,c', ','))[2]
array_length(nums, 0)
array_length(nums, NULL)
array_upper(ARRAY[]::int[], 1)
array_lower(ARRAY[]::int[], 1)
array_ndims(ARRAY[]::int[])
array_dims(ARRAY[]::int[])
array_append(nums, NULL)
array_append(tags, word)
array_append(ARRAY[1.5], 2)
array_append(ARRAY[1], 2.25)
array_prepend(NULL, nums)
array_prepend(1.5, ARRAY[2])
array_cat(NULL::int[], NULL::int[])
array_cat(nums, NULL)
array_cat(tags, tags)
array_cat(ARRAY[1], ARRAY[2.5])
ARRAY[1, 2] || 3.5
'x' || tags
tags || NULL
tags || word
NULL || nums
ARRAY[]::int[] || 1
array_remove(tags, 'a')
array_remove(nums, NULL)
array_remove(ARRAY[1.0, 2, 1.00], 1)
array_replace(tags, 'a', NULL)
array_replace(ARRAY[NULL, 1], NULL, 5)
array_replace(ARRAY[1.0, 2], 1, 3.75)
array_position(nums, NULL)
array_position(ARRAY[1, 2, 1], 1, 2)
array_position(ARRAY[1, 2, 1], 1, 0)
array_position(ARRAY[1, 2, 1], 1, NULL)
array_position(ARRAY[1.50, 2], 1.5)
array_position(NULL::int[], 1)
array_positions(tags, 'a')
array_positions(nums, NULL)
array_positions(NULL::int[], 1)
array_positions(ARRAY[1], 2)
nums @> ARRAY[]::int[]
nums @> NULL
nums <@ NULL
nums && NULL
nums && ARRAY[NULL]::int[]
nums && ARRAY[]::int[]
ARRAY[NULL]::int[] <@ ARRAY[NULL, 1]
ARRAY[1, 1] <@ ARRAY[1]
ARRAY[1.0, 2] @> ARRAY[1.00]
ARRAY[price] @> ARRAY[9.990]
ARRAY['{"a":1}', '2']::jsonb[] @> ARRAY['2.0']::jsonb[]
tags <@ ARRAY['a', 'abc', 'b']
nums = ARRAY[1, NULL, 3]
nums <> ARRAY[5]
nums < ARRAY[1, 2, 3]
nums >= ARRAY[3]
nums IS NOT DISTINCT FROM ARRAY[5]
nums = '{1,2}'
nums = NULL
nums IN (ARRAY[5], ARRAY[1, 2])
tags > ARRAY['a']
tags = ARRAY['a', 'abc']
ARRAY[1, 2] = ARRAY[1, 2, 3]
ARRAY[NULL]::int[] = ARRAY[NULL]::int[]
ARRAY[NULL]::int[] > ARRAY[1]
ARRAY[]::int[] < ARRAY[NULL]::int[]
ARRAY[1.0] = ARRAY[1.00]
ARRAY[1.5] < ARRAY[1.25, 3]
ARRAY[price] = ARRAY[9.99]
ARRAY['1.0'::jsonb] = ARRAY['1'::jsonb]
ARRAY['a'] < ARRAY['B']
array_sort(tags)
array_sort(nums, true)
array_sort(nums, true, false)
array_sort(nums, false, true)
array_reverse(tags)
trim_array(nums, 0)
trim_array(nums, 9)
trim_array(nums, -1)
trim_array(nums, NULL)
array_fill(NULL::int, ARRAY[2])
array_fill('x'::text, ARRAY[k])
array_fill(1, ARRAY[0])
array_fill(1, ARRAY[]::int[])
array_fill(1, ARRAY[-1])
array_fill(1, NULL)
array_fill(1, ARRAY[NULL]::int[])
array_fill(1, ARRAY[2, 2])
array_to_string(tags, '|')
array_to_string(tags, '|', '*')
array_to_string(tags, NULL)
array_to_string(ARRAY[true, false], ',')
array_to_string(ARRAY[1.50, 2], ',')
array_to_string(ARRAY[d], ',')
array_to_string(ARRAY[]::int[], ',')
array_to_string(nums, '')
string_to_array('a,b,,c', ',', '')
string_to_array('', ',')
string_to_array('abc', NULL)
string_to_array('abc', '')
string_to_array(t, ' ')
NULL = ANY (nums)
1 = ANY (nums)
1 = ANY (NULL::int[])
1 = ANY (ARRAY[]::int[])
1 <> ALL (ARRAY[]::int[])
1 <> ALL (nums)
3 >= ALL (nums)
k = ANY ('{1,2}')
word = ANY (ARRAY['apple', NULL])
word LIKE ANY (ARRAY['a%', 'B%'])
word NOT LIKE ALL (ARRAY['a%', 'B%'])
price = ANY (ARRAY[9.99, 10.5])
j ->> 'a' = ANY (ARRAY['1', 'x'])
NOT (k = ANY (nums))
(SELECT array_agg(e ORDER BY e DESC NULLS LAST) FROM unnest(nums) AS e)
(SELECT count(*) FROM unnest(tags) AS e WHERE e = 'a')
(SELECT max(o) FROM unnest(nums) WITH ORDINALITY AS u(e, o))
(SELECT sum(e) FROM unnest(ARRAY[1.5, 2.25]) AS e)
(SELECT sum(i) FROM generate_subscripts(nums, 1) AS i)
ARRAY(SELECT e * 2 FROM unnest(nums) AS e)
ARRAY(SELECT price FROM items WHERE order_id = 100 ORDER BY line)
CASE WHEN k = 1 THEN nums ELSE ARRAY[0] END
coalesce(nums, '{}')
nullif(nums, ARRAY[5])
greatest(nums, ARRAY[3])
cardinality(string_to_array(t, 'a'))
greatest(ARRAY[1.5], ARRAY[1.50, 2])
least(nums, ARRAY[3], NULL)
k = ANY (ARRAY[]::int[])
k = ALL (ARRAY[]::int[])
1 / (id - 2) = ANY (ARRAY[]::int[])
1 / (id - 2) <> ALL ('{}'::int[])
1 / (id - 2) = ANY (array_remove(nums, 1))
1 / (id - 2) = ANY (array_remove(ARRAY[k], k))
upper(word) = ANY (array_remove(tags, 'a'))
lower(word) = ANY (CASE WHEN id > 3 THEN tags ELSE '{}' END)
NULL = ANY (ARRAY[]::int[])
