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
