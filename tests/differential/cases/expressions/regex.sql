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
