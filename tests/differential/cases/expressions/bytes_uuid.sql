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
