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
(j -> 'b')::text
jsonb_pretty(j)
'{"b":1,"aa":2,"a":3}'::jsonb::text
'{"é":1,"zz":2,"z":3}'::jsonb::text
'{"a":1,"a":2}'::jsonb::text
' [1 , 1.10,1e3,-0,-0.0 , 1E-3]'::jsonb::text
'"\u0001\u007f/\/\b\f\n\r\t\"\\"'::jsonb::text
'123456789012345678901234567890.123456789'::jsonb::text
'1e-20'::jsonb::text
'[1,]'::jsonb
'{"a":1,}'::jsonb
'NaN'::jsonb
'"\ud83d"'::jsonb
'"a'::jsonb
t::jsonb
('[' || k || ', 1.50]')::jsonb
('{"w": "' || word || '"}')::jsonb ->> 'w'
('{"a": ' || price || '}')::jsonb -> 'a'
(('{"a": ' || price || '}')::jsonb ->> 'a')::numeric + 1
j -> 'a' ->> 'b'
j -> 'a' -> 'b' -> 'c' ->> 'd'
j #>> '{a,b,c,d}'
j #>> '{b,2}'
j #>> '{b,-1,c}'
j #> ARRAY['b', k::text]
j #>> ARRAY['a', NULL]
j -> word
j ->> k
j -> (k - 1)
j -> NULL
j ->> NULL
'"abc"'::jsonb -> 0
'"abc"'::jsonb -> -1
'"abc"'::jsonb -> 1
'"abc"'::jsonb #> '{0}'
'{"a": "x"}'::jsonb -> 'a' -> 0
'[1, [2, 3]]'::jsonb #> '{1," 1"}'
'[1, [2, 3]]'::jsonb #> '{1,"1 "}'
'[1, [2, 3]]'::jsonb #> '{1,99999999999}'
'{"0": 1}'::jsonb #> '{0}'
'{"a": {"b": 1.10}}'::jsonb -> 'a' ->> 'b'
'{"x": {"a": 1.5}, "a": 1.50}'::jsonb ->> 'a'
'{"a": 1.5e1}'::jsonb ->> 'a'
'{"a": -1.0}'::jsonb ->> 'a'
'{"a\"b": 1}'::jsonb ->> 'a"b'
'{"a*": 1, "ab": 2}'::jsonb ->> 'a*'
'{"a''b": 1}'::jsonb ->> 'a''b'
'{"a b": 1}'::jsonb ->> 'a b'
'{"": 1.50}'::jsonb ->> ''
'{"a/b": 7.0}'::jsonb ->> 'a/b'
'{"a%b": 7.0}'::jsonb ->> 'a%b'
'{"A": 1}'::jsonb ->> 'a'
(j -> 'a')::int
(j -> 'neg')::numeric
(j -> 'big')::numeric
(j -> 'f')::int
(j -> 'neg')::float8
(j -> 's')::int
j::int
j::boolean
j::numeric
'5.5'::jsonb::int
'-2.5'::jsonb::int
'2.5'::jsonb::int8
'99999999999'::jsonb::int
'99999999999'::jsonb::int8
'40000'::jsonb::int2
'null'::jsonb::int
'null'::jsonb::text
'true'::jsonb::int
'{}'::jsonb::numeric
'[1]'::jsonb::boolean
'1e400'::jsonb::float8
'1e-400'::jsonb::float8
'1e-5'::jsonb::numeric
(j ->> 'big')::numeric
(j ->> 'big')::int8
(j ->> 'f')::int
(j ->> 'neg')::int
(j ->> 's')::int
(j ->> 'zzz')::int
(j ->> 'a')::text || '!'
coalesce(j ->> 'a', 'none')
coalesce((j ->> 'neg')::float8, 0) * 2
(j ->> 'a') IN ('1', 'x')
j -> 'a' IN ('1', '"x"')
j ->> 'a' LIKE '%1%'
length(j ->> 's')
upper(j ->> 's')
CASE WHEN j ? 'a' THEN j -> 'a' ELSE 'null'::jsonb END
CASE j -> 'a' WHEN '1' THEN 'one' WHEN '"x"' THEN 'ex' ELSE 'other' END
nullif(j -> 'a', 'null')
nullif(j ->> 'a', '1')
j < '{}'
j >= '12.5'
j = '12.500'
j IS DISTINCT FROM '{}'
j = ANY (ARRAY['12.5', '"text"']::jsonb[])
j BETWEEN '[]' AND '1000'
'[]'::jsonb < 'null'::jsonb
'[[]]'::jsonb > '[1]'::jsonb
'[1, 2]'::jsonb > '[9]'::jsonb
'{"b": 1}'::jsonb > '{"aa": 1}'::jsonb
'{"a": 1}'::jsonb < '{"a": 1, "b": 0}'::jsonb
'{}'::jsonb > '[9, 9]'::jsonb
'"a"'::jsonb > '"B"'::jsonb
'-1'::jsonb < '-0.5'::jsonb
'100'::jsonb > '99.9'::jsonb
'1.0'::jsonb = '1'::jsonb
'false'::jsonb < 'true'::jsonb
'1'::jsonb < 'true'::jsonb
'12345678901234567890'::jsonb < '12345678901234567891'::jsonb
j @> '{"a": {"b": {}}}'
j @> '{"a": {"b": {"c": {"d": [2]}}}}'
j @> '[{"k": "v"}]'
j @> '[1, 1, 1]'
j @> 'null'
j @> '12.5'
j @> '{"tags": ["q"]}'
j @> NULL
'[1, [2, 3]]'::jsonb @> '[[3]]'::jsonb
'[1, [2, 3]]'::jsonb @> '[3]'::jsonb
'"a"'::jsonb @> '["a"]'::jsonb
'["a"]'::jsonb @> '"a"'::jsonb
'{"a": 1}'::jsonb @> '"a"'::jsonb
'{"a": [1]}'::jsonb @> '{"a": 1}'::jsonb
'[true]'::jsonb @> '[1]'::jsonb
'[1.0]'::jsonb @> '[1]'::jsonb
'{"a": null}'::jsonb @> '{"a": null}'::jsonb
j <@ '[1, "two", null, true, {"k": "v"}, 5]'
j ? NULL
j ? ''
j ?| ARRAY['zz', 'tags', NULL]
j ?& ARRAY[]::text[]
j ?| ARRAY[]::text[]
j ?& ARRAY['a', NULL]
'"x"'::jsonb ? 'x'
'[1, "1"]'::jsonb ? '1'
j || j
j || '[]'
j || 'null'
j || NULL
'2'::jsonb || '{"a": 1}'::jsonb
'{}'::jsonb || '3'::jsonb
'[]'::jsonb || '{}'::jsonb
'{"a": {"b": 1}}'::jsonb || '{"a": {"c": 2}}'::jsonb
'3'::jsonb - 'a'
'3'::jsonb - 1
'{"a": 1}'::jsonb - 1
'["a", "b", "a"]'::jsonb - ARRAY['a']
'["a", "b"]'::jsonb - 5
'["a", "b"]'::jsonb - -5
'{"a": [1, {"b": 2}]}'::jsonb #- '{a,1,b}'
'{"a": [1, 2]}'::jsonb #- '{a,-1}'
'[1, 2]'::jsonb #- '{a}'
'3'::jsonb #- '{a}'
'{"a": 1}'::jsonb #- '{}'
'{"a": 1}'::jsonb #- ARRAY['a', NULL]
jsonb_set('[1, 2]', '{5}', '9')
jsonb_set('[1, 2]', '{-5}', '9')
jsonb_set('[1, 2]', '{-1}', '9')
jsonb_set('[1, 2]', '{x}', '9')
jsonb_set('{"a": {}}', '{a,b,c}', '9')
jsonb_set('{"a": {}}', '{a,b}', '{"z":1,"y":1.0}')
jsonb_set('{"a": 1}', '{a,b}', '9')
jsonb_set('{"a": 1}', '{}', '9')
jsonb_set('3', '{a}', '9')
jsonb_set('{"a": 1}', NULL, '9')
jsonb_set('{"a": 1}', '{a}', NULL)
jsonb_set(j, '{a}', '0', false)
jsonb_set(j, '{b,0}', to_jsonb(word))
jsonb_insert('{"a": 1}', '{a}', '9')
jsonb_insert('{"a": 1}', '{b}', '9')
jsonb_insert('[1, 2]', '{0}', '9')
jsonb_insert('[1, 2]', '{0}', '9', true)
jsonb_insert('[1, 2]', '{-1}', '9')
jsonb_insert('[1, 2]', '{-1}', '9', true)
jsonb_insert('[1, 2]', '{7}', '9')
jsonb_insert('[1, 2]', '{-7}', '9')
jsonb_strip_nulls('[null, {"a": null, "b": [null]}]')
jsonb_strip_nulls('[null, {"a": null, "b": [null]}]', true)
jsonb_array_length(j)
jsonb_array_length('"x"')
jsonb_array_length('[]')
jsonb_array_length(NULL)
jsonb_typeof(NULL)
jsonb_typeof('1e5')
jsonb_typeof('12345678901234567890123')
jsonb_build_object()
jsonb_build_array()
jsonb_build_object('b', 1, 'a', 2, 'b', 3)
jsonb_build_object(1, 2, true, 3, 1.50, 4)
jsonb_build_object(NULL, 1)
jsonb_build_object(word, 1)
jsonb_build_object(id, price)
jsonb_build_object(d, ts)
jsonb_build_object('a', ARRAY[1, NULL], 'j', j, 'n', nums)
jsonb_build_object('x', 1.0 / 3)
jsonb_build_object('x', x)
jsonb_build_object('b', b, 'u', u, 't', t)
jsonb_build_object(ARRAY[1], 2)
jsonb_build_object('a', jsonb_build_array(1, jsonb_build_object('b', NULL)))::text
json_build_object('b', 1, 'a', ARRAY[1, 2], 'n', NULL)::text
json_build_array(1, 'x', NULL, ARRAY[1, 2], 1.50)::text
json_build_object('j', j)::text
to_jsonb(x)::text
to_jsonb(rate)::text
to_jsonb(amount)::text
to_jsonb(t)::text
to_jsonb(b)::text
to_jsonb(ts)::text
to_jsonb(d)::text
to_jsonb(tags)::text
to_jsonb(nums)::text
to_json(tags)::text
to_json(nums)::text
to_json(x)::text
to_json(ts)::text
to_json(j)::text
to_json(flag)::text
to_jsonb(1.0 / 3)
to_jsonb('x'::text)
to_jsonb(NULL::int)
to_jsonb(interval '1 day 02:03:04')
to_jsonb('NaN'::float8)
to_jsonb('-Infinity'::float8)
to_jsonb(1e20::float8)::text
to_jsonb(1.5::real)::text
to_jsonb(ARRAY[1.5, 2.25])::text
to_jsonb(ARRAY['{"a": 1}', NULL]::jsonb[])::text
array_to_json(tags)::text
array_to_json(ARRAY[j])::text
jsonb_object('{}')
jsonb_object('{a,1,b}')
jsonb_object(ARRAY['a', NULL])
jsonb_object(ARRAY[NULL, 'a'])
jsonb_object('{a,b}', '{1}')
jsonb_object(tags)
jsonb_extract_path(j, 'a', 'b')
jsonb_extract_path(j, 'b', '-1')
jsonb_extract_path_text(j, 'b', '1')
jsonb_extract_path_text(j, word)
jsonb_delete_path('{"a": [1, 2]}', '{a,0}')
jsonb_exists_any('{"a": 1}', '{a,b}')
jsonb_exists_all('{"a": 1}', '{a,b}')
jsonb_object_field_text('{"a": 1.10}', 'a')
jsonb_array_element('[1, 2]', 1)
j['b'][-1]
j['b']['0']
j['zzz']
j[0]
j['b'][0:1]
'{"b":1,"a":[1,2 , 3]}'::json::text
'{"b":1,"a":[1,2 , 3]}'::json ->> 'a'
('{"b":1,"a":[1,2 , 3]}'::json -> 'a')::text
'[1,"x", null ]'::json ->> 1
'[1,"x", null ]'::json ->> 2
('[1,"x", null ]'::json -> -1)::text
'"x"'::json -> 0
'{"a":{"b" : 1.10}}'::json #>> '{a}'
'{"a":{"b" : 1.10}}'::json #>> '{a,b}'
'{"a": 1, "a": 2}'::json ->> 'a'
'{"a":1}'::json::jsonb
'{"b":1, "a":1.0}'::jsonb::json::text
'[1,2'::json
'{"a":1}'::json = '{"a":1}'::json
'{"a":1,"a":2}' IS JSON
'{"a":1,"a":2}' IS JSON WITH UNIQUE KEYS
'"\u0000"' IS JSON
'"\ud83d"' IS JSON
'1e999999' IS JSON
'[1]' IS JSON SCALAR
'[1]' IS JSON ARRAY
t IS NOT JSON
t IS JSON VALUE
NULL IS JSON
1 IS JSON
word IS JSON AND k = 1
(SELECT count(*) FROM jsonb_array_elements(j -> 'b'))
(SELECT string_agg(e, '|') FROM jsonb_array_elements_text(CASE WHEN jsonb_typeof(j) = 'array' THEN j END) AS e)
(SELECT string_agg(key || '=' || value, ',') FROM jsonb_each_text(CASE WHEN jsonb_typeof(j) = 'object' THEN j END))
(SELECT array_agg(k) FROM jsonb_object_keys(CASE WHEN jsonb_typeof(j) = 'object' THEN j END) AS k)
(SELECT count(*) FROM jsonb_each(j))
greatest(j, '1')
json_object('a': k, 'b': word)::text
json_object('a': 1, 'b': NULL)::text
json_object()::text
json_object('a': j)
json_object('a': 1 ABSENT ON NULL)
json_array(1, NULL, 'a', 1.50)::text
json_array(1, NULL NULL ON NULL)::text
json_array()::text
json_array(k)
json_scalar('x"y')::text
json_scalar(price)::text
json_scalar(NULL)
json_scalar(ts)
least(j, '"a"', NULL)
greatest('1.0'::jsonb, '1'::jsonb)::text
greatest('[]'::jsonb, '{}'::jsonb, 'null'::jsonb)
