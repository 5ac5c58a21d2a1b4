j -> 'a'
j ->> 'a'
j -> 'b' -> 0
j -> 'b' ->> 1
j -> 0
j ->> 0
j -> -1
j ->> -1
j -> 'zzz'
j ->> 'zzz'
j ->> 'b'
j ->> 's'
j -> 'b' -> 2 -> 'c'
j -> 'b' -> 2 ->> 'c'
j #> '{b,0}'
j #>> '{b,0}'
j #> '{a,b,c}'
j #>> '{a,b,c,d,1}'
j #>> ARRAY['a', 'b']
j #> '{}'
j #>> '{}'
j -> ''
j -> 'é'
j ->> 'é'
j ->> 'big'
j ->> 'f'
j ->> 'neg'
j -> 'a' = '1'
j ->> 'a' = '1'
(j ->> 'a')::int
(j ->> 'neg')::numeric
(j ->> 'neg')::double precision * 2
(j -> 'b' ->> 0)::int + 1
(j ->> 'b')::boolean
j ->> 'a' IS NULL
j -> 'a' IS NULL
j IS NULL
j IS NOT NULL
j @> '{"a": 1}'
j @> '{"b": [1]}'
j @> '[1]'
j @> '"text"'
j @> '{}'
j @> '[]'
'{"a": 1}'::jsonb <@ j
j <@ '{"a": 1, "b": true}'
j ? 'a'
j ? 'text'
j ? 'two'
j ?| ARRAY['a', 'z']
j ?& ARRAY['a', 'b']
j || '{"z": 1}'
'{"a": 1}'::jsonb || '{"a": 2, "b": 3}'::jsonb
'[1]'::jsonb || '[2, 3]'::jsonb
'[1]'::jsonb || '2'::jsonb
'{"a": 1}'::jsonb || '[2]'::jsonb
j - 'a'
'{"a": 1, "b": 2}'::jsonb - 'a'
'{"a": 1, "b": 2}'::jsonb - ARRAY['a', 'b']
'["a", "b"]'::jsonb - 'a'
'["a", "b"]'::jsonb - 0
'["a", "b"]'::jsonb - -1
'{"a": {"b": 1, "c": 2}}'::jsonb #- '{a,b}'
j @? '$.a'
j @@ '$.a == 1'
jsonb_typeof(j)
jsonb_typeof(j -> 'a')
jsonb_typeof('null'::jsonb)
json_typeof('[1]'::json)
jsonb_array_length('[1, 2, 3]'::jsonb)
jsonb_array_length(j -> 'b')
jsonb_array_length('{}'::jsonb)
jsonb_build_object('a', 1, 'b', 'x')
jsonb_build_object('k', k, 'price', price, 'word', word)
jsonb_build_object('d', d, 'ts', ts, 'flag', flag)
jsonb_build_object('n', NULL)
jsonb_build_object('a')
jsonb_build_array(1, 'a', NULL, true)
jsonb_build_array(k, price, y)
json_build_object('a', 1)
json_build_array(1, 2)
jsonb_object('{a,1,b,2}')
jsonb_object(ARRAY['a', 'b'], ARRAY['1', '2'])
to_jsonb(k)
to_jsonb(price)
to_jsonb(word)
to_jsonb(d)
to_jsonb(ts)
to_jsonb(y)
to_jsonb(flag)
to_jsonb(tags)
to_jsonb(nums)
to_jsonb(u)
to_jsonb(j)
to_json(k)
array_to_json(nums)
jsonb_extract_path(j, 'a')
jsonb_extract_path(j, 'b', '0')
jsonb_extract_path_text(j, 'a')
jsonb_extract_path_text(j, 'a', 'b')
jsonb_set('{"a": 1}'::jsonb, '{a}', '2')
jsonb_set('{"a": 1}'::jsonb, '{b}', '2')
jsonb_set('{"a": 1}'::jsonb, '{b}', '2', false)
jsonb_set('{"a": [1, 2]}'::jsonb, '{a,0}', '9')
jsonb_set(j, '{z}', to_jsonb(k))
jsonb_insert('{"a": [0, 1]}'::jsonb, '{a,1}', '"new"')
jsonb_strip_nulls('{"a": null, "b": {"c": null}}'::jsonb)
jsonb_strip_nulls(j)
jsonb_pretty('{"a": [1, 2]}'::jsonb)
jsonb_path_exists(j, '$.b[*] ? (@ == 1)')
jsonb_path_query_first(j, '$.b[0]')
jsonb_path_query_array(j, '$.b[*]')
jsonb_path_match(j, '$.a == 1', '{}', true)
jsonb_concat('{"a": 1}', '{"b": 2}')
jsonb_contains('{"a": 1}'::jsonb, '{"a": 1}'::jsonb)
jsonb_exists('{"a": 1}'::jsonb, 'a')
j['a']
j['b'][0]
j['a']['b']
'{"a": 1}'::jsonb = '{"a": 1.0}'::jsonb
'{"a": 1, "b": 2}'::jsonb = '{"b": 2, "a": 1}'::jsonb
'1'::jsonb < '2'::jsonb
'[1]'::jsonb > '[0]'::jsonb
'"a"'::jsonb < '1'::jsonb
'{"a": "x"}'::jsonb ->> 'a' || 'y'
'{"a": "x\ny"}'::jsonb ->> 'a'
'{"a": "\u00e9"}'::jsonb ->> 'a'
'{"a": "\u0000"}'::jsonb ->> 'a'
'{"a": 1.10}'::jsonb ->> 'a'
'{"a": 1e2}'::jsonb ->> 'a'
'{"a": {"b": 1}}'::jsonb ->> 'a'
'{"a": [1, 2]}'::jsonb ->> 'a'
'{"a": [1, 2]}'::json ->> 'a'
'{"a": null}'::jsonb ->> 'a'
'{"a": null}'::jsonb -> 'a'
'{"a": null}'::jsonb -> 'a' = 'null'
'{"1": "x"}'::jsonb -> '1'
'{"1": "x"}'::jsonb -> 1
'[1, 2]'::jsonb -> '0'
'{"a.b": 1}'::jsonb -> 'a.b'
'{"$a": 1}'::jsonb -> '$a'
'[[[[[[[[[[1]]]]]]]]]]'::jsonb
json_object('a': 1, 'b': 2)
json_array(1, 2, NULL)
json_value(j, '$.a')
json_query(j, '$.b')
json_exists(j, '$.a')
j IS JSON
t IS JSON
t IS JSON OBJECT
json_scalar(1)
row_to_json(ROW(1, 'a'))
