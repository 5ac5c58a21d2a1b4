-- Arrays. Items that are null are equal to each other where PostgreSQL finds them so.
CREATE MACRO array_element(a, i) AS CASE WHEN i >= 1 THEN list_extract(a, i) ELSE NULL END;
CREATE MACRO array_slice_of(a, low, high) AS CASE
    WHEN a IS NULL OR low IS NULL OR high IS NULL THEN NULL
    WHEN high < 1 OR low > high THEN list_slice(a, 2, 1)
    ELSE list_slice(a, greatest(low, 1), high) END;
CREATE MACRO array_joined(a, b) AS CASE WHEN a IS NULL THEN b WHEN b IS NULL THEN a ELSE list_concat(a, b) END;
CREATE MACRO array_without(a, keys, k) AS CASE WHEN a IS NULL THEN NULL
    ELSE list_transform(list_filter(list_zip(a, keys), lambda pair: pair[2] IS DISTINCT FROM k), lambda pair: pair[1]) END;
CREATE MACRO array_replaced(a, keys, k, new) AS CASE WHEN a IS NULL THEN NULL
    ELSE list_transform(list_zip(a, keys), lambda pair: CASE WHEN pair[2] IS NOT DISTINCT FROM k THEN new ELSE pair[1] END) END;
CREATE MACRO array_places(keys, k) AS
    list_filter(list_transform(keys, lambda item, place: CASE WHEN item IS NOT DISTINCT FROM k THEN CAST(place AS INTEGER) END), lambda place: place IS NOT NULL);
CREATE MACRO array_place(keys, k, first) AS CASE
    WHEN keys IS NULL THEN NULL
    WHEN first IS NULL THEN fail('22004', 'initial position must not be null')
    ELSE list_filter(array_places(keys, k), lambda place: place >= first)[1] END;
CREATE MACRO array_has_all(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL
    ELSE len(list_filter(b, lambda item: item IS NULL OR NOT list_contains(a, item))) = 0 END;
CREATE MACRO array_has_any(a, b) AS CASE WHEN a IS NULL OR b IS NULL THEN NULL
    ELSE len(list_filter(b, lambda item: item IS NOT NULL AND list_contains(a, item))) > 0 END;
CREATE MACRO array_sorted(a, descending, nulls_first) AS CASE
    WHEN descending AND nulls_first THEN list_sort(a, 'DESC', 'NULLS FIRST')
    WHEN descending THEN list_sort(a, 'DESC', 'NULLS LAST')
    WHEN nulls_first THEN list_sort(a, 'ASC', 'NULLS FIRST')
    ELSE list_sort(a, 'ASC', 'NULLS LAST') END;
CREATE MACRO array_trimmed(a, n) AS CASE
    WHEN n < 0 OR n > len(a) THEN fail('2202E', 'number of elements to trim must be between 0 and ' || len(a))
    ELSE list_slice(a, 1, len(a) - n) END;
CREATE MACRO array_filled(item, sizes) AS CASE
    WHEN sizes IS NULL THEN fail('22004', 'dimension array or low bound array cannot be null')
    WHEN len(sizes) > 1 THEN fail('0A000', 'arrays of more than one dimension are not supported')
    WHEN len(sizes) = 1 AND sizes[1] IS NULL THEN fail('22004', 'dimension values cannot be null')
    WHEN sizes[1] < 0 OR sizes[1] > 1000000 THEN fail('54000', 'array size exceeds the maximum allowed (1000000)')
    ELSE list_transform(range(coalesce(sizes[1], 0)), lambda place: item) END;
CREATE MACRO array_subscripts(a, dimension) AS
    CASE WHEN dimension = 1 THEN list_transform(a, lambda item, place: CAST(place AS INTEGER)) ELSE NULL END;
