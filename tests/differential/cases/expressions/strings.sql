t || 'x'
t || t
word || ' ' || k
'a' || NULL
k || 'x'
'x' || k
'x' || price
'x' || flag
'x' || d
'x' || ts
'x' || y
k || k
'a' 'b'
concat(word, '-', k)
concat(word, NULL, 'x')
concat(NULL, NULL)
concat(flag, d, price)
concat_ws(',', word, k, price)
concat_ws(',', NULL, 'a', NULL, 'b')
concat_ws(NULL, 'a', 'b')
upper(t)
lower(t)
upper('ß')
lower('İ')
initcap('hello wORLD foo-bar')
initcap(t)
length(t)
char_length(t)
character_length(t)
octet_length(t)
bit_length(t)
length('')
length('é')
length(word)
length(123)
trim(t)
trim('  x  ')
trim(both 'x' from 'xxaxx')
trim(leading 'x' from 'xxaxx')
trim(trailing 'x' from 'xxaxx')
trim('xy' from 'xyaxy')
trim(both from '  a ')
ltrim(t)
rtrim(t)
btrim(t)
btrim('xyxtrimyyx', 'xyz')
ltrim('zzzytest', 'xyz')
rtrim('testxxzx', 'xyz')
btrim(E'\t a \n')
trim(E'\t a \n')
substring(t, 2)
substring(t, 1, 2)
substring(t, 0, 3)
substring(t, -1, 3)
substring('abcdef', 2, 3)
substring('abcdef', -2, 4)
substring('abcdef', 3, 0)
substring('abcdef', 3, -1)
substring('abcdef' from 2 for 3)
substring('abcdef' from 3)
substring('abcdef' for 2)
substring('Thomas' from '...$')
substring('foobar' from 'o(.)b')
substring('foobar' similar 'f#"oo#"bar' escape '#')
substr(t, 2, 3)
substr('abcdef', 2)
left(t, 2)
left('abcde', -2)
left('abcde', 0)
left(word, k)
right(t, 2)
right('abcde', -2)
right(word, k)
position('b' in 'abc')
position('' in 'abc')
position('z' in 'abc')
strpos(t, 'a')
strpos('high', 'ig')
strpos(word, 'e')
replace(t, 'a', 'x')
replace('abcabc', 'bc', '')
replace('abc', '', 'x')
translate('12345', '143', 'ax')
translate(t, 'ab', 'AB')
overlay('Txxxxas' placing 'hom' from 2 for 4)
overlay('abcdef' placing 'X' from 3)
repeat('ab', 3)
repeat('ab', 0)
repeat('ab', -1)
repeat(word, k)
reverse(t)
reverse('abc')
lpad('5', 3, '0')
lpad('abc', 2)
lpad('hi', 5)
lpad(word, 8, '*')
lpad('hi', 7, 'xy')
rpad('hi', 5, 'xy')
rpad('abc', 2)
rpad(word, 8)
lpad('é', 3, 'ü')
lpad(k::text, 3, '0')
split_part('a,b,c', ',', 2)
split_part('a,b,c', ',', 5)
split_part('a,b,c', ',', -1)
split_part('a,b,c', ',', 0)
split_part(t, ' ', 1)
split_part(t, ',', 1)
string_to_array('a,b,c', ',')
string_to_array('a,,c', ',', '')
string_to_array('abc', NULL)
string_to_array('', ',')
string_to_array(t, ' ')
array_to_string(tags, ',')
array_to_string(tags, ',', '*')
array_to_string(nums, '-')
array_to_string(ARRAY[1, NULL, 3], ',')
array_to_string(ARRAY[1, NULL, 3], ',', 'x')
ascii('A')
ascii('é')
ascii('')
chr(65)
chr(233)
chr(0)
md5('abc')
md5(t)
sha256('abc')
encode('\x00ff', 'escape')
decode('616263', 'hex')
decode('YWJj', 'base64')
decode('zz', 'hex')
encode(sha256('abc'::bytea), 'hex')
convert_from(b, 'UTF8')
convert_to(t, 'UTF8')
quote_literal('it''s')
quote_ident('Foo bar')
quote_nullable(NULL)
format('Hello %s, %s', 'a', 1)
format('%I = %L', 'my col', 'it''s')
format('%s', NULL)
format('%2$s %1$s', 'a', 'b')
format('%10s|', 'abc')
format('%-10s|', 'abc')
format('%%')
starts_with(t, 'a')
starts_with('abc', '')
t ^@ 'ab'
t LIKE 'a%'
t LIKE '%b%'
t LIKE '_b_'
t LIKE ''
t LIKE '%'
t LIKE 'a\%%'
t LIKE 'a!%b!_c%' ESCAPE '!'
t LIKE 'a%b' ESCAPE ''
t NOT LIKE 'a%'
t ILIKE 'A%'
t ILIKE '%WORLD'
t NOT ILIKE 'abc'
t ~~ 'a%'
t !~~ 'a%'
t ~~* 'ABC'
'abc' LIKE 'abc\'
'É' ILIKE 'é'
'a_c' LIKE 'a\_c'
'abc' LIKE 'a\_c'
word LIKE word
word LIKE 'B%' OR word LIKE '%y'
t LIKE ANY (ARRAY['a%', '%c'])
t LIKE ALL (ARRAY['a%', '%c'])
word LIKE NULL
k LIKE '1%'
k::text LIKE '1%'
t SIMILAR TO '(a|b)%'
t SIMILAR TO 'abc'
t SIMILAR TO '%(b|d)%'
t NOT SIMILAR TO 'a_c'
'abc' SIMILAR TO '_b_'
'abc' SIMILAR TO 'a'
normalize(t)
normalize(t, NFD)
t IS NORMALIZED
unistr('d\0061t\+000061')
to_ascii('abc')
string_to_array(word, 'e')
E'a\nb'
E'\u00e9'
E'it\'s'
'a\nb'
U&'d\0061t\+000061'
$$dollar 'quoted'$$
$tag$a$tag$
'tab	here'
text 'abc'
'abc'::varchar(2)
'abc'::char(5)
'abc'::char(5) || 'x'
char_length('abc'::char(5))
to_char(1234.5, '9999.99')
to_char(price, 'FM999990.00')
to_char(k, '000')
to_char(-5, 'S99')
to_char(1234567, '9,999,999')
to_char(0.5, '90.9')
to_char(12, 'RN')
to_number('1,234.50', '9,999.99')
parse_ident('a.b.c')
any_value_is_not_a_function(k)
upper(k)
length(k)
substring(k, 1)
left(k, 1)
reverse(k)
trim(k)
lower(NULL)
upper()
replace('a')
