-- A column of interval.
SELECT max(id) AS last, count(*) AS times FROM v GROUP BY span ORDER BY span;
SELECT id FROM v ORDER BY span, id;
SELECT id FROM v ORDER BY span DESC NULLS LAST, id;
SELECT count(DISTINCT span) AS kinds, min(span) AS low, max(span) AS high FROM v;
SELECT sum(span) AS total, avg(span) AS mean FROM v;
SELECT a.id, b.id AS other FROM v AS a JOIN v AS b ON a.span = b.span AND a.id < b.id ORDER BY 1, 2;
SELECT id FROM v WHERE span IN (SELECT span FROM v WHERE id = 3) ORDER BY id;
SELECT id, rank() OVER (ORDER BY span) AS place FROM v ORDER BY id;
SELECT id, lag(span) OVER (ORDER BY id) AS before FROM v ORDER BY id;
SELECT array_agg(span ORDER BY id) AS listed FROM v WHERE id < 5;
SELECT string_agg(span::text, ', ' ORDER BY id) AS listed FROM v;
SELECT span FROM v WHERE id = 1 UNION ALL SELECT interval '2 days';
SELECT id FROM v WHERE span IS NOT DISTINCT FROM interval '1 mon' ORDER BY id;
SELECT k, sum(span) AS total FROM v GROUP BY k HAVING sum(span) > '1 mon' ORDER BY k;
SELECT DISTINCT span > '1 day' AS long FROM v ORDER BY long;
