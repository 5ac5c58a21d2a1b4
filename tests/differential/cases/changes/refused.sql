-- Writes that PostgreSQL runs and that are refused.
INSERT INTO t (id, a) VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET a = (SELECT v FROM u WHERE k = excluded.a);
INSERT INTO t (id, a) VALUES (8, 1) RETURNING (SELECT v FROM u WHERE k = a);
INSERT INTO t (id, b) VALUES (9, X'0aff');
INSERT INTO t (id, a) SELECT k, k FROM u ON CONFLICT (id) DO UPDATE SET a = excluded.a WHERE t.b IN (SELECT 'x');
