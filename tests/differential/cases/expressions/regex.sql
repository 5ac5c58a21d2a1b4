t ~ 'a'
t ~ '^a'
t ~ 'c$'
t ~ '^[a-z]+$'
t ~* 'ABC'
t !~ 'a'
t !~* 'a'
t ~ ''
t ~ '\d'
t ~ '^\w+$'
t ~ '\s'
t ~ '[[:alpha:]]'
t ~ '^[[:upper:]]+$'
t ~ 'a{2,3}'
t ~ 'a.c'
t ~ '(foo|bar)'
t ~ '\yfoo\y'
t ~ '\mbar\M'
t ~ 'a\.b'
t ~ '^.{3}$'
t ~ '(?i)abc'
t ~ '('
t ~ NULL
word ~ 'a' AND word ~* 'B'
'abc' ~ 'b'
E'a\nb' ~ 'a.b'
E'a\nb' ~ '^b'
E'a\nb' ~ '(?n)^b'
'aaa' ~ '^a*?$'
'foobar' ~ 'foo(?=bar)'
'foobar' ~ 'foo(?!bar)'
'abab' ~ '^(ab)\1$'
regexp_replace(t, 'a', 'X')
regexp_replace(t, 'a', 'X', 'g')
regexp_replace(t, '[aeiou]', '', 'g')
regexp_replace('Thomas', '.[mN]a.', 'M')
regexp_replace('foobarbaz', 'b(..)', 'X\1Y', 'g')
regexp_replace('foobarbaz', 'b..', '[\&]', 'g')
regexp_replace('foobarbaz', 'B(..)', 'X\1Y', 'gi')
regexp_replace('a.b.c', '\.', '-', 'g')
regexp_replace('abc', '', '-', 'g')
regexp_replace('aaa', 'a', 'b', 2)
regexp_replace('aaa', 'a', 'b', 1, 2)
regexp_replace(word, '^(.)(.*)$', '\2\1')
regexp_replace('  a   b ', '\s+', ' ', 'g')
regexp_replace('2024-02-29', '(\d+)-(\d+)-(\d+)', '\3.\2.\1')
regexp_replace(NULL, 'a', 'b')
regexp_match('foobarbequebaz', '(bar)(beque)')
regexp_match('foobarbequebaz', 'barbeque')
regexp_match('abc', 'z')
regexp_match(t, '(.)(.)')
regexp_match('ABC', 'b', 'i')
(regexp_match('foobar', 'o(b)(a)'))[1]
(regexp_match(t, '^(\w+)'))[1]
regexp_like(t, 'abc')
regexp_like('ABC', 'abc', 'i')
regexp_count('ABCABCAXYaxy', 'A.')
regexp_count(t, 'a')
regexp_instr('number of your street', 'o', 1, 2)
regexp_substr('number of your street', 'o(\w)')
regexp_substr(t, '[a-c]+')
regexp_split_to_array('hello world', '\s+')
regexp_split_to_array('a,b;c', '[,;]')
regexp_split_to_array(t, ' ')
regexp_split_to_array('abc', '')
substring('foobar' from 'o.b')
substring(t from '[a-z]+')
t ~ '\w'
t ~ '^\W*$'
t ~ '\S+\s\S+'
t ~ '[^[:alnum:][:space:]]'
t ~ '[[:punct:]]'
t ~ '^[[:lower:]]+$'
t ~ '[\d-]'
t ~ '[a\-z]'
t ~ '[]a]'
t ~ '[^]a]'
t ~ '[[.a.]]'
t ~ '[[=a=]b]'
t ~ '\x61'
t ~ '\u65e5'
t ~ 'a|^$'
t ~ '(a|)(b|)c'
t ~ '^(?:a|A)'
t ~ '\Aabc\Z'
t ~ '\mfoo\M|\yWorld\y'
t ~ '\Yo'
t ~ '[[:<:]]bar[[:>:]]'
t ~ E'\n'
t ~ '^line'
t ~ '(?n)^line$'
t ~ '(?w)^line'
t ~ '(?p)new.line'
t ~ '***=a%b_c\d'
t ~ '***:a.c'
t ~ '(?q)a%b'
t ~ 'a{'
t ~ 'a{1'
t ~ 'a{2,1}'
t ~ 'a{256}'
t ~ '*a'
t ~ 'a**'
t ~ '^*'
t ~ '[z-a]'
t ~ '[a'
t ~ '[[:foo:]]'
t ~ 'a)'
t ~ '\'
t ~ '(?z)a'
t ~* 'É'
t ~* 'STRASSE|straße'
t ~* '[A-C]{3}'
t ~* '[[:upper:]]{3}'
t !~* '^[a-z]+$'
t ~ word
word ~ '^[A-Z]'
word ~* ('^' || left(word, 1))
t ~ ANY (ARRAY['^a', 'z$'])
'ſ' ~* 's'
'K' ~* 'k'
regexp_replace('foobar', 'o*', 'X')
regexp_replace('foobar', 'o*', 'X', 'g')
regexp_replace('foobar', '', '-')
regexp_replace('abcabc', 'a|ab|abc', 'X', 'g')
regexp_replace('aab', 'a*(ab)?', '<\1>')
regexp_replace('xaby', '(a|ab)(c|bcd)?(d*)', '<\1,\2,\3>')
regexp_replace('foo', 'o+?', 'X')
regexp_replace('foo', 'o+?', 'X', 'g')
regexp_replace('aaa bbb', '^(.*?) (.*)$', '\2 \1')
regexp_replace('a1b22', '\d+', '<\&>', 'g')
regexp_replace('abc', 'b', '\\')
regexp_replace('abc', 'b', '\n')
regexp_replace('abc', '(b)', '\2\1')
regexp_replace('abc', 'B', 'x', 'i')
regexp_replace(t, '\s', '_', 'g')
regexp_replace(t, '[^[:alnum:]]', '', 'g')
regexp_replace(t, '(\w)(\w*)', '\2\1', 'g')
regexp_replace(t, '^\s+|\s+$', '', 'g')
regexp_replace('aaa', 'a', 'b', 1, 0)
regexp_replace('aaa', 'a', 'b', 0)
regexp_replace('aaa', 'a', 'b', 2, -1)
regexp_replace('AAA', 'a', 'b', 1, 2, 'i')
regexp_replace('aaa', 'a', 'b', 'x1')
regexp_replace('aaa', 'a', 'b', '1')
regexp_replace(E'a\nb', '^b', 'X', 'n')
regexp_replace(E'a\nb', '.', 'X', 'gn')
regexp_replace('abc', NULL, 'x')
regexp_replace('Hello', '[aeiou]', upper('\&'), 'g')
regexp_match('abcd', '(a|ab)(bcd|cd)')
regexp_match('abcd', '(a|ab)?(b?)(.*)')
regexp_match('aaa', '(a)*')
regexp_match('abab', '(ab)+?')
regexp_match('xyz', '(a)?(y)?')
regexp_match('xyz', 'x(a)?y')
regexp_match('key=value', '(\w+)=(\w+)')
regexp_match('a=b=c', '(.*)=(.*)')
regexp_match('a=b=c', '(.*?)=(.*)')
regexp_match('XY1234Z', 'Y*([0-9]{1,3})')
regexp_match('XY1234Z', 'Y*?([0-9]{1,3})')
regexp_match('XY1234Z', '(?:Y*?)([0-9]{1,3})')
regexp_match('abc01234xyz', '(?:(.*?)(\d+)(.*)){1,1}')
regexp_match('abc01234xyz', '(.*)(\d+)(.*)')
regexp_match('abc01234xyz', '(.*?)(\d+)(.*)')
regexp_match(t, '(\w+)\W*(\w*)')
regexp_match('abc', 'b', 'g')
regexp_match('abc', '(?:b)(c)|(x)')
regexp_like(t, '^A', 'i')
regexp_like('abc', 'b', 'g')
regexp_like('a.c', 'a.c', 'q')
regexp_count('aaa', 'a*')
regexp_count('abcabc', 'b', 3)
regexp_count('ABCABC', 'b', 1, 'i')
regexp_count('abc', '')
regexp_count('abc', 'b', 0)
regexp_instr('abcabc', 'b')
regexp_instr('abcabc', 'b', 3)
regexp_instr('abcabc', 'b', 1, 2, 1)
regexp_instr('ABCABC', '(b)(c)', 1, 1, 0, 'i', 2)
regexp_instr('abc', 'z')
regexp_instr('abc', '(b)', 1, 1, 0, '', 2)
regexp_instr(t, '[aeiou]')
regexp_substr('abcabc', 'b.', 1, 2)
regexp_substr('ABC', '(a)(b)', 1, 1, 'i', 2)
regexp_substr('abc', 'b', 1, 0)
regexp_substr('foobar', 'o*')
regexp_split_to_array('a1b22c', '\d+')
regexp_split_to_array('abc', 'b*')
regexp_split_to_array(' a b ', ' ')
regexp_split_to_array('', 'x')
regexp_split_to_array('aXbxc', 'x', 'i')
regexp_split_to_array(t, '\s*')
substring(t from '(\w)(\w)')
substring('foobar' from 'z')
substring('foobar' from '(z)?o')
substring('foobar', 'o+')
substring(t, '^.*\d')
regexp_replace('日本語', '本', 'x')
regexp_replace(E'a😀b', '.', '-', 'g')
regexp_replace(t, '[aeiou]+', '<\&>', 'g')
regexp_replace(t, '(\d+)-(\d+)', '\2/\1')
regexp_replace(word, '^([a-z])', '\1\1\\')
regexp_replace(t, 'a', repeat('x', 5), 'g')
regexp_replace(gen_random_uuid()::text, '[0-9a-f]', 'h', 'g')
(regexp_match(t, '^([^@]+)@([^@]+)$'))[2]
regexp_match(t, '([A-Z])[a-z]+')
substring(t from '\d+')
substring(t from '^([^ ]+) ')
substring(t from 'a(x)?')
regexp_replace('foobar foo', 'foo|bar', '[\&]', 'g')
regexp_replace('xay', '((a)|b)+', '<\1\2>')
regexp_replace('ab', '((a)|b)+', '<\1\2>')
