b || '\x01'
b || b
length(b)
substring(b, 1, 1)
substring(b from 2)
get_byte(b, 0)
set_byte('\x0000', 1, 255)
encode(b, 'hex')
encode(b, 'base64')
decode(encode(b, 'hex'), 'hex')
position('\xff' in b)
trim('\x00' from '\x00ff00'::bytea)
md5(b)
sha256(b)
sha224('a')
sha512('a')
crc32('abc')
b = '\xdeadbeef'
b IS NULL
reverse(b)
b LIKE '\xde%'
left(b::text, 4)
bit_length(b)
octet_length(b)
u::text || 'x'
upper(u::text)
u IS NOT NULL
u = u
u > '00000000-0000-0000-0000-000000000000'
gen_random_uuid() IS NOT NULL
gen_random_uuid() <> gen_random_uuid()
uuidv7() IS NOT NULL
uuidv4() IS NOT NULL
uuid_extract_version('6f9619ff-8b86-4011-b42d-00cf4fc964ff')
length(u::text)
left(u::text, 8)
u || 'x'
u LIKE '6f%'
replace(u::text, '-', '')
encode(b, 'escape')
encode(b, 'HEX')
encode(repeat('abc', 40)::bytea, 'base64')
encode(b, 'foo')
decode('YW Jj', 'base64')
decode('YWJ', 'base64')
decode('YW=Jj', 'base64')
decode('a b', 'hex')
decode('0aF', 'hex')
decode('a\000b\\', 'escape')
decode('\9', 'escape')
'\x0aFF'::bytea
'abc\\d\001'::bytea
'\xzz'::bytea
'\x0'::bytea
t::bytea
b::text
b::text::bytea = b
'x' || b
substring(b, 0, 2)
substring(b, 2, -1)
substring(b, -1, 3)
substr(b, 2)
overlay('\x010203'::bytea placing '\xff'::bytea from 2)
overlay('\x010203'::bytea placing '\xffff'::bytea from 2 for 1)
btrim('\x0001ff00'::bytea, '\x00ff'::bytea)
ltrim('\x0001'::bytea, '\x00'::bytea)
rtrim('\x0100'::bytea, '\x00'::bytea)
get_byte(b, 5)
get_bit('\x01'::bytea, 0)
get_bit('\x80'::bytea, 7)
get_bit(b, -1)
set_bit('\x00'::bytea, 3, 1)
set_bit('\x00'::bytea, 3, 2)
set_byte(b, 0, 300)
bit_count(b)
bit_count('\xffff'::bytea)
sha384(b)
sha512(b)
sha224(b)
crc32(b)
crc32c('abc')
md5(b) = md5('abc')
convert_from('\xff'::bytea, 'UTF8')
convert_from('\xc3a9'::bytea, 'utf-8')
convert_from('\x00'::bytea, 'UTF8')
length(convert_to(t, 'UTF8'))
length('\xc3a9'::bytea, 'UTF8')
b < '\x61'
b BETWEEN '\x00' AND '\x62'
b LIKE '%b%'
b LIKE '\x6162_'
b NOT LIKE '%c'
position('\x'::bytea in b)
position('\xbe'::bytea in b)
reverse('\x0102'::bytea)
258::int2::bytea
(-2)::bytea
9223372036854775807::bytea
'\x0102'::bytea::int4
'\xfffffffe'::bytea::int4
'\xff'::bytea::int2
'\x0102030405'::bytea::int4
coalesce(b, '\x00')
greatest(b, '\x61')
u::text
'{6F9619FF8B86D011B42D00CF4FC964FF}'::uuid
'6f96-19ff-8b86-d011-b42d-00cf-4fc9-64ff'::uuid
'6f9619ff-8b86-d011-b42d-00cf4fc964f'::uuid
'6f9-619ff8b86d011b42d00cf4fc964ff'::uuid
'{6f9619ff-8b86-d011-b42d-00cf4fc964ff'::uuid
(u::text || '')::uuid
t::uuid
uuid_extract_version(u)
uuid_extract_version(uuidv7())
uuid_extract_version(gen_random_uuid())
uuid_extract_timestamp('019535d9-3df7-79fb-b466-fa907fa17f9e')
uuid_extract_timestamp('c232ab00-9414-11ec-b3c8-9f6bdeced846')
uuid_extract_timestamp('6f9619ff-8b86-4011-b42d-00cf4fc964ff')
u < 'ffffffff-ffff-ffff-ffff-ffffffffffff'
u IN ('00000000-0000-0000-0000-000000000000')
least(u, '11111111-1111-1111-1111-111111111111')
u = '6F9619FF-8B86-D011-B42D-00CF4FC964FF'
length(gen_random_uuid()::text)
uuid_extract_version((gen_random_uuid()::text)::uuid)
gen_random_uuid()::text ~ '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
uuidv7() > uuidv4() IS NOT NULL
