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
concat(x, y)
concat(t, b)
concat(u, d, ts)
concat(j)
concat(tags, nums)
concat(amount, rate, small, big)
concat('a'::char(3), '|')
concat_ws('-', k, price, flag, d)
concat_ws('', 'a', '', 'b')
concat_ws(t, 'x', 'y')
concat_ws(word, tags, NULL, nums)
'x' || x
'x' || rate
'x' || big
'x' || b::text
'x' || u
'x' || j
t || NULL || 'a'
tags || 'x'
'n: ' || -3
1 || ' is ' || true
upper('straße ǆ ŉ ﬁ İı')
lower('ÀÉÎ ΑΣ Σ İ Ǆ')
upper(lower(t)) = upper(t)
casefold('STRASSE ß Σσς')
initcap('o''neil mc-donald 3rd éa ßa')
initcap(lower(t))
length(E'e\u0301tude')
length('👨‍👩‍👧')
reverse(E'e\u0301tude')
reverse('👨‍👩‍👧')
left(E'e\u0301tude', 1)
right(E'e\u0301tude', 5)
left('abc', 10)
left('abc', -10)
right('abc', 10)
right('abc', -10)
left(t, -1)
right(t, -1)
left('abc', 2147483647)
right('abc', -2147483648)
substring('abc', 2147483647)
substring('abc', -2147483648)
substring('abc', -2147483648, 2147483647)
substring('abc', 2, 2147483647)
substring('abc', -5, 6)
substring(t, k)
substring(t, k, k)
substr('日本語', 2, 1)
substring(NULL, 1, 2)
substring('abc', NULL, 2)
substr('abc', 1, -1)
overlay('abcdef' placing '123' from 6)
overlay('abcdef' placing '123' from 10)
overlay('abcdef' placing '' from 2 for 3)
overlay('abcdef' placing 'X' from 3 for -1)
overlay('abcdef' placing 'X' from 0)
overlay('日本語' placing 'é' from 2 for 1)
repeat('é', 3)
repeat('', 1000000)
repeat(NULL, 2)
repeat('a', NULL)
lpad('abc', 5, '')
lpad('', 3, 'xy')
lpad('abc', 0, 'x')
lpad('abc', -3, 'x')
rpad('日本', 5, '語x')
lpad(t, 4, '→')
rpad(NULL, 3)
lpad('x', 3, NULL)
split_part('a||b||c', '||', 2)
split_part('', ',', 1)
split_part('abc', '', 1)
split_part('abc', '', 2)
split_part('a,b', ',', -2)
split_part('a,b', ',', -3)
split_part(t, 'a', 2)
split_part('aaa', 'aa', 2)
split_part('日本語', '本', 2)
string_to_array('a,b,', ',')
string_to_array('a,b,NULL', ',', 'NULL')
string_to_array('aXXbXXc', 'XX', 'b')
string_to_array(NULL, ',')
string_to_array(t, NULL)
string_to_array('', NULL)
array_to_string(string_to_array(t, ' '), '+')
array_to_string(ARRAY[1.50, NULL, 2], ', ')
array_to_string(ARRAY[]::text[], ',')
array_to_string(NULL::int[], ',')
strpos('日本語', '語')
strpos('', '')
strpos(t, '')
position(NULL in 'a')
replace(t, ' ', '')
replace('aaa', 'aa', 'b')
replace('abc', 'b', NULL)
replace(t, E'\n', '\n')
translate('abc', 'abc', '')
translate('日本語', '本', 'x')
translate('aabbcc', 'aab', 'xyz')
translate(t, 'aeiouàé', '')
ascii('日')
ascii('😀')
chr(8364)
chr(1114111)
chr(128512)
chr(-1)
chr(1114112)
chr(55296)
chr(id + 96)
to_hex(9223372036854775807)
to_bin(-1)
to_oct(-1::bigint)
md5('')
md5('é')
md5(word)
btrim('  x  ', '')
btrim('', 'x')
btrim('ééaéé', 'é')
trim('abc', 'ca')
ltrim(t, 'a ')
rtrim('trail   ')
trim(both 'ab' from NULL)
ltrim(' ' || chr(160) || 'x')
btrim(chr(8195) || 'x')
starts_with(t, '')
starts_with(t, NULL)
starts_with('日本', '日')
quote_ident(t)
quote_ident('select')
quote_ident('Ünïcode')
quote_ident('a1_$')
quote_ident('')
quote_literal(t)
quote_literal(k)
quote_literal(price)
quote_literal(d)
quote_literal(E'a\\b''c')
quote_literal(NULL)
quote_nullable(k)
quote_nullable(t)
quote_nullable(flag)
format('%s-%s', t, k)
format('%s', x)
format('%s %s', flag, tags)
format('%L %L', t, k)
format('%I', t)
format('%I.%I', 'a', 'B c')
format('%-5s|%5s|', k, word)
format('%*s|', 6, 'ab')
format('%-*s|', 6, 'ab')
format('%*s|', -6, 'ab')
format('%1$s %1$s %2$L', word, k)
format('%2$*1$s|', 5, 'x')
format('%s %s', 'a')
format('%s', 'a', 'b')
format('%d', 1)
format('%')
format('%0$s', 'a')
format('%I', NULL)
format('%L', NULL)
format('%s%%', 50)
format(t, 'x')
format(NULL, 'x')
format('100%% %3$s', 1, 2, 'c')
t LIKE '%\%%'
t LIKE '%\\%'
t LIKE 'tab%line'
t LIKE '___'
t LIKE '%_'
t LIKE '_%_'
t LIKE 'é%'
t LIKE '日_語'
t LIKE '%''%'
t LIKE 'a#%b#_c\d' ESCAPE '#'
t LIKE '%a' ESCAPE 'a'
'a\b' LIKE 'a\b' ESCAPE ''
'a' LIKE 'a' ESCAPE 'xy'
'50%' LIKE '50!%' ESCAPE '!'
t LIKE t
t LIKE word || '%'
'abc' LIKE '%%%c'
'' LIKE ''
'' LIKE '_'
'abc' LIKE '%\'
NULL LIKE 'a'
'a' LIKE NULL
t ILIKE '%É%'
t ILIKE 'STRASSE%'
'straße' ILIKE 'STRAßE'
'ΣΑΣ' ILIKE 'σας'
t ILIKE 'a\%B%'
t NOT ILIKE '%O%'
word ~~* 'B_N%'
word !~~* 'b%'
t LIKE ALL (ARRAY['%a%', '%b%'])
t ILIKE ANY (ARRAY['%A%', '%É%'])
t NOT LIKE ALL (ARRAY['a%', 'b%'])
t SIMILAR TO '%(a|e){2}%'
t SIMILAR TO '[a-c]+'
t SIMILAR TO '[^a-z]*'
t SIMILAR TO '\w+'
t SIMILAR TO '_{3}'
t SIMILAR TO 'a#%%' ESCAPE '#'
'a.c' SIMILAR TO 'a.c'
'abc' SIMILAR TO 'a.c'
'abc' SIMILAR TO '(a|b)(c|b)c'
'a^b$' SIMILAR TO 'a^b$'
'abc' SIMILAR TO NULL
'ab' SIMILAR TO '[[:alpha:]]{2}'
substring('abcdefg' similar 'a#"%#"g' escape '#')
substring('abcdefg' similar '#"(b_d|%)#"%' escape '#')
substring('abc' similar '%' escape '#')
substring(t similar '%#"[a-z]+#"%' escape '#')
normalize('é', NFD) = E'e\u0301'
normalize('ﬁ', NFKC)
normalize('Å', NFKD)
'é' IS NFC NORMALIZED
E'e\u0301' IS NORMALIZED
'abc' IS NOT NFD NORMALIZED
t IS NFD NORMALIZED
unistr('\0441\043B\043E\043D')
unistr('\\a \u00e9 \U0001F600')
unistr('\D83D\DE00')
unistr('\D83D')
unistr('\zz')
parse_ident('"Foo Bar".baz')
parse_ident('SomeSchema.someTable')
parse_ident('foo.boo[]')
parse_ident('foo.boo[]', false)
parse_ident('a..b')
parse_ident(' a . b ')
string_to_array(t, 'a')
char_length(t::varchar(3))
t::varchar(2) || '|'
t::char(4) || '|'
t::char(4) = t
octet_length(t::char(4))
length(t::char(4))
'abc  '::char(5) = 'abc'::char(10)
'abc  '::varchar = 'abc'
upper(t::char(4))
't'::char(3) LIKE 't  '
repeat('x', k) LIKE 'xx%'
lower(t) = t
pg_typeof(left(t, 1))::text
pg_typeof('a' || 'b')::text
