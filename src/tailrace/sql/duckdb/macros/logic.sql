-- Errors and logic. `fail` names PostgreSQL's code of the error.
CREATE MACRO fail(code, message) AS error('[' || code || '] ' || message);
CREATE MACRO any_of(tests) AS CASE
    WHEN tests IS NULL THEN NULL
    WHEN list_contains(tests, true) THEN true
    WHEN len(list_filter(tests, lambda x: x IS NULL)) > 0 THEN NULL
    ELSE false END;
CREATE MACRO all_of(tests) AS CASE
    WHEN tests IS NULL THEN NULL
    WHEN list_contains(tests, false) THEN false
    WHEN len(list_filter(tests, lambda x: x IS NULL)) > 0 THEN NULL
    ELSE true END;
