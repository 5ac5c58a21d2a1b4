CASE WHEN k = 1 THEN 'one' WHEN k = 2 THEN 'two' ELSE 'many' END
CASE WHEN k > 2 THEN k END
CASE k WHEN 1 THEN 'one' WHEN 2 THEN 'two' END
CASE k WHEN 1 THEN 'one' ELSE word END
CASE word WHEN 'apple' THEN 1 WHEN 'fig' THEN 2.5 ELSE 0 END
CASE WHEN flag THEN 1 ELSE 2.0 END
CASE WHEN flag THEN 1 ELSE y END
CASE WHEN flag THEN price ELSE k END
CASE WHEN flag THEN d ELSE ts END
CASE WHEN flag THEN NULL ELSE k END
CASE WHEN flag THEN 'a' ELSE NULL END
CASE WHEN NULL THEN 1 ELSE 2 END
CASE NULL WHEN NULL THEN 1 ELSE 2 END
CASE WHEN k <> 0 THEN 10 / k ELSE 0 END
CASE WHEN k = 2 THEN 0 ELSE 10 / (k - 2) END
CASE WHEN flag THEN 1 ELSE 'a' END
CASE WHEN flag THEN '1' ELSE 2 END
CASE WHEN k THEN 1 ELSE 2 END
CASE WHEN flag THEN small ELSE big END
CASE WHEN flag THEN tags ELSE ARRAY['none'] END
CASE WHEN k IS NULL THEN -1 WHEN k % 2 = 0 THEN 0 ELSE 1 END
coalesce(k, 0)
coalesce(k, 0.5)
coalesce(word, 'none')
coalesce(NULL, NULL, 3)
coalesce(NULL, word, t)
coalesce(price, k)
coalesce(y, price, 1)
coalesce(d, date '2000-01-01')
coalesce(d, '2000-01-01')
coalesce(ts, d)
coalesce(flag, false)
coalesce(k, 'x')
coalesce(k, '7')
coalesce(tags, '{}')
coalesce(nums, ARRAY[0])
coalesce(j, '{}')
coalesce(small, big)
coalesce(NULL)
nullif(k, 2)
nullif(word, 'apple')
nullif(price, 10.5)
nullif(k, NULL)
nullif(NULL, 1)
nullif(1, 1)
nullif(k, 2.0)
nullif(k, 'a')
10 / nullif(k - 2, 0)
num_nulls(k, word, price)
num_nonnulls(k, word, price)
(SELECT 1)
(SELECT max(n) FROM nothing)
EXISTS (SELECT 1 FROM orders)
NOT EXISTS (SELECT 1 FROM nothing)
k IN (SELECT 1)
k NOT IN (SELECT line FROM items)
(SELECT count(*) FROM items WHERE line = k)
(SELECT name FROM customers WHERE customers.id = v.k)
(SELECT name FROM customers)
k = ANY (SELECT line FROM items)
k > ALL (SELECT line FROM items)
-- Numbers of different types
CASE WHEN flag THEN k ELSE price END
CASE WHEN flag THEN k ELSE y END
CASE WHEN flag THEN price ELSE y END
CASE WHEN flag THEN price ELSE rate END
CASE WHEN flag THEN price / 3 ELSE 1 END
CASE WHEN flag THEN 1.5 ELSE 2 END
CASE WHEN flag THEN k ELSE y::real END
CASE k WHEN 1.0 THEN 'one' WHEN 2.5 THEN 'two' ELSE 'other' END
CASE WHEN k = 0 THEN 0 ELSE 10 / k END
CASE WHEN y <> 0 THEN 1 / y END
coalesce(k, price)
coalesce(k, y)
coalesce(price, rate)
coalesce(price, 0)
coalesce(price, 0.000)
coalesce(price / 3, 0)
coalesce(small, n, big)
coalesce(small, 1.5)
coalesce(y::real, k)
nullif(k, 1.0)
nullif(y, 0.5)
nullif(price / 2, 5.25)
greatest(k, 1.5)
greatest(price, rate)
greatest(small, n, big)
greatest(y, price)
greatest(price / 3, 2)
greatest(1.0, 1.00)
greatest('NaN'::double precision, y)
least('NaN'::double precision, y)
least(price, rate)
least(small, 2.5)
least(price / 3, price / 7)
least(1.00, 1.0)
