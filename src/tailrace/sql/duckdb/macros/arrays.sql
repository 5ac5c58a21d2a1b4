-- Arrays.
CREATE MACRO array_element(a, i) AS CASE WHEN i >= 1 THEN list_extract(a, i) ELSE NULL END;
