-- JSON.
CREATE MACRO record_json(t) AS CASE WHEN json_valid(t) THEN CAST(t AS JSON) ELSE NULL END;
