"""The loops of `fast_events.py`, from the bytes of changes to the bytes of records.

They are Python that numba compiles to machine code: parameters are pointers, and nothing is allocated, raised or looked up, so
the code refers to nothing outside of it. A shifted byte is unsigned, and with a signed number it would become a float, so bytes
are multiplied. Kinds of columns are single bits, because the compiler would turn other numbers into
a table of addresses.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def"
INTEGER, BOOLEAN, TEXT, DECIMAL, FLOAT, DATE, TIME, TIMESTAMP, QUOTED, JSON, BYTES = (1 << bit for bit in range(11))
"""How the text of a column becomes JSON."""

DONE, FULL, GENERAL = range(3)
"""Why a loop returned: nothing is left, the next record belongs to another batch, or the next change is not for it."""

NEXT, COUNT, COMMIT, FILLED, RECORDS, FIRST, NEWEST, MOST_BYTES, MOST_RECORDS, CHANGE_BYTES, MOST_INPUT, SPARE = range(12)
"""What the entries of `state` are: the next change, how many there are, the commit of the next one, how far the batch is
filled, its records, its first and newest timestamp, the most bytes and records that it may have, the most bytes of an event and
of a change, and where there is room behind the changes if they are lines of COPY."""
STATES = 12

COMMIT_FIELDS = 6
"""Of each commit: the change behind its last one, its timestamp, and the places and sizes of two of its texts: the end of an
event, and the number of headers with the last of them."""

OP_FIELDS = 8
"""Of each operation: the places and sizes of four of its texts: the begin of an event, what stands behind the key, what stands
behind the old row, and the first headers."""
OPS_AT = 2
COLUMNS_AT = OPS_AT + 3 * OP_FIELDS
COLUMN_FIELDS = 4
"""Of each column: its kind, the place and size of its name, and whether it belongs to the key."""

ESCAPES_AT, HEX_AT, COPY_AT, BASE64_AT, ZEROS_AT, PADDING_AT = 0, 256, 272, 528, 592, 598
"""Where the tables are in `texts`: what stands behind the backslash for each byte of a text, digits, what stands for each byte
behind a backslash in a line of COPY, the digits of Base64, and what times and Base64 are filled up with. A loop that writes one
byte several times would become a call of the C library."""
PLAIN, HEX_ESCAPE, NOT_ASCII = 0, 1, 2

_NULL, _UNSENT, _BAD = -1, -2, -1
_MAX_NESTED = 500
_INSERT, _UPDATE, _DELETE = range(3)


def encode_changes(data, ends, commits, commit_texts, shape, texts, cells, value, out, state):
    """Write the records of changes behind what `out` has, as far as they fit. Return why it stopped.

    `data` has the changes, which end at `ends[1:]`. `shape` describes the table, and has the places of its `texts`. `cells` has
    room for the places of two rows, and `value` for an event.
    """
    columns = shape[0]
    keys = shape[1]
    keys_at = COLUMNS_AT + COLUMN_FIELDS * columns
    commit = state[COMMIT] * COMMIT_FIELDS
    for row in range(state[NEXT], state[COUNT]):
        state[NEXT] = row
        at = ends[row]
        end = ends[row + 1]
        if end - at > state[MOST_INPUT]:
            return GENERAL
        while row >= commits[commit]:
            commit += COMMIT_FIELDS
            state[COMMIT] += 1
        op = read_change(data, at, end, cells, columns, shape, texts, state[SPARE])
        if op < 0:
            return GENERAL
        op_at = OPS_AT + OP_FIELDS * op
        to = copy(texts, shape[op_at], shape[op_at + 1], value, 0)
        key_at = to
        key_end = to
        for image in range(3):
            if (image == 1 and op == _INSERT) or (image == 2 and op == _DELETE):
                continue
            base = 2 * columns
            if image == 1 or (image == 0 and op == _DELETE):
                base = 0
            value[to] = 123
            to += 1
            is_first = True
            for place in range(columns if image else keys):
                column = place
                if image == 0:
                    column = shape[keys_at + place]
                size = cells[base + 2 * column + 1]
                if size == _UNSENT:
                    if image == 0:
                        return GENERAL
                    continue
                if not is_first:
                    value[to] = 44
                    to += 1
                is_first = False
                about = COLUMNS_AT + COLUMN_FIELDS * column
                to = copy(texts, shape[about + 1], shape[about + 2], value, to)
                if size == _NULL:
                    if image == 0:
                        return GENERAL
                    value[to] = 110
                    value[to + 1] = 117
                    value[to + 2] = 108
                    value[to + 3] = 108
                    to += 4
                else:
                    at = cells[base + 2 * column]
                    to = write_cell(shape[about], data, at, at + size, value, to, texts)
                    if to == _BAD:
                        return GENERAL
            value[to] = 125
            to += 1
            if image == 0:
                key_end = to
                to = copy(texts, shape[op_at + 2], shape[op_at + 3], value, to)
            elif image == 1:
                to = copy(texts, shape[op_at + 4], shape[op_at + 5], value, to)
        to = copy(commit_texts, commits[commit + 2], commits[commit + 3], value, to)
        if to > state[CHANGE_BYTES]:
            return GENERAL
        # A record: its size, attributes, timestamp and offset, the key, the event, and the headers.
        records = state[RECORDS]
        timestamp = commits[commit + 1]
        later = timestamp - state[FIRST] if records else 0
        key_size = key_end - key_at
        body = 1 + varint_size(later) + varint_size(records) + varint_size(key_size) + key_size + varint_size(to) + to
        body += shape[op_at + 7] + commits[commit + 5]
        filled = state[FILLED]
        if filled + varint_size(body) + body > state[MOST_BYTES]:
            return FULL if records else GENERAL
        if records >= state[MOST_RECORDS]:
            return FULL
        filled = write_varint(out, filled, body)
        out[filled] = 0
        filled = write_varint(out, filled + 1, later)
        filled = write_varint(out, filled, records)
        filled = write_varint(out, filled, key_size)
        filled = copy(value, key_at, key_size, out, filled)
        filled = write_varint(out, filled, to)
        filled = copy(value, 0, to, out, filled)
        at = commits[commit + 4]
        out[filled] = commit_texts[at]
        filled = copy(texts, shape[op_at + 6], shape[op_at + 7], out, filled + 1)
        filled = copy(commit_texts, at + 1, commits[commit + 5] - 1, out, filled)
        state[FILLED] = filled
        state[RECORDS] = records + 1
        if records == 0:
            state[FIRST] = timestamp
            state[NEWEST] = timestamp
        elif timestamp > state[NEWEST]:
            state[NEWEST] = timestamp
    state[NEXT] = state[COUNT]
    return DONE


def read_change(data, at, end, cells, columns, shape, texts, spare):
    """Find the cells of the old row and behind them those of the new one. Return the operation, or `_BAD`.

    `spare` is 0 unless the change is a line of COPY.
    """
    if spare:
        return _INSERT if read_line(data, at, end, cells, 2 * columns, columns, texts, spare) else _BAD
    if end - at < 8:
        return _BAD
    tag = data[at]
    kind = data[at + 5]
    at += 6
    op = _INSERT
    if tag == 68:
        op = _DELETE
    elif tag == 85:
        op = _UPDATE
    elif tag != 73:
        return _BAD
    has_old = kind == 75 or kind == 79
    if has_old:
        if op == _INSERT:
            return _BAD
        # Columns that do not belong to the replica identity look like nulls.
        at = read_row(data, at, end, cells, 0, columns, _UNSENT if kind == 75 else _NULL)
        if at == _BAD:
            return _BAD
        if op == _DELETE:
            return op if at == end else _BAD
        if at >= end:
            return _BAD
        kind = data[at]
        at += 1
    if kind != 78 or op == _DELETE:
        return _BAD
    new = 2 * columns
    if read_row(data, at, end, cells, new, columns, _NULL) != end:
        return _BAD
    if op == _UPDATE:
        for column in range(columns):
            is_key = shape[COLUMNS_AT + COLUMN_FIELDS * column + 3]
            if not has_old:
                cells[2 * column] = cells[new + 2 * column]
                cells[2 * column + 1] = cells[new + 2 * column + 1] if is_key else _UNSENT
            elif is_key:
                size = cells[2 * column + 1]
                if size != _UNSENT:
                    if size != cells[new + 2 * column + 1] or size < 0:
                        return _BAD
                    before = cells[2 * column]
                    after = cells[new + 2 * column]
                    for place in range(size):
                        if data[before + place] != data[after + place]:
                            return _BAD
    return op


def read_row(data, at, end, cells, base, columns, null):
    """Find the cells of a row of `pgoutput`. Return where it ends, or `_BAD`."""
    if end - at < 2 or data[at] * 0x100 + data[at + 1] != columns:
        return _BAD
    at += 2
    for column in range(columns):
        if at >= end:
            return _BAD
        kind = data[at]
        at += 1
        size = null
        if kind == 116:
            if end - at < 4:
                return _BAD
            size = data[at] * 0x1000000 + data[at + 1] * 0x10000 + data[at + 2] * 0x100 + data[at + 3]
            at += 4
            if size > end - at:
                return _BAD
        elif kind != 110:
            return _BAD
        cells[base + 2 * column] = at
        cells[base + 2 * column + 1] = size
        if size > 0:
            at += size
    return at


def read_line(data, at, end, cells, base, columns, texts, spare):
    """Find the cells of a line of COPY. Return whether it has all columns.

    Cells with escapes are written without them at `spare`. The line stays what it is, because it is read again if its record
    does not fit into the batch.
    """
    for column in range(columns):
        first = at
        while at < end and data[at] != 9 and data[at] != 92:
            at += 1
        stop = at
        if at < end and data[at] == 92:
            at = first
            first = spare
            is_null = False
            while at < end and data[at] != 9:
                byte = data[at]
                if byte == 92:
                    at += 1
                    if at >= end or data[at] == 9:
                        return False
                    byte = data[at]
                    if byte == 78 and first == spare and (at + 1 == end or data[at + 1] == 9):
                        is_null = True
                    byte = texts[COPY_AT + byte]
                data[spare] = byte
                spare += 1
                at += 1
            stop = first + _NULL if is_null else spare
        cells[base + 2 * column] = first
        cells[base + 2 * column + 1] = stop - first
        if column < columns - 1:
            if at >= end:
                return False
            at += 1
    return at == end


def write_cell(kind, data, at, end, value, to, texts):
    """Write the JSON of a cell. Return where it ends, or `_BAD` if the general path must decide what it is."""
    if kind & TEXT:
        return write_text(data, at, end, value, to, texts)
    if kind & (INTEGER | DECIMAL | FLOAT):
        return write_number(kind, data, at, end, value, to)
    if kind & (DATE | TIME | TIMESTAMP):
        return write_time(kind, data, at, end, value, to, texts)
    if kind & JSON:
        return write_json(data, at, end, value, to)
    if kind & BYTES:
        return write_base64(data, at, end, value, to, texts)
    if kind & QUOTED:
        value[to] = 34
        to = copy(data, at, end - at, value, to + 1)
        value[to] = 34
        return to + 1
    if end - at != 1:
        return _BAD
    if data[at] == 116:
        value[to] = 116
        value[to + 1] = 114
        value[to + 2] = 117
    elif data[at] == 102:
        value[to] = 102
        value[to + 1] = 97
        value[to + 2] = 108
        value[to + 3] = 115
        to += 1
    else:
        return _BAD
    value[to + 3] = 101
    return to + 4


def write_text(data, at, end, value, to, texts):
    value[to] = 34
    to += 1
    while at < end:
        byte = data[at]
        escape = texts[ESCAPES_AT + byte]
        if escape == PLAIN:
            value[to] = byte
            to += 1
            at += 1
        elif escape == NOT_ASCII:
            size = character_size(data, at, end)
            if size == 0:
                return _BAD
            to = copy(data, at, size, value, to)
            at += size
        else:
            value[to] = 92
            value[to + 1] = escape
            to += 2
            if escape == HEX_ESCAPE:
                value[to - 1] = 117
                value[to] = 48
                value[to + 1] = 48
                value[to + 2] = texts[HEX_AT + ((byte & 0xFF) >> 4)]
                value[to + 3] = texts[HEX_AT + (byte & 15)]
                to += 4
            at += 1
    value[to] = 34
    return to + 1


def write_number(kind, data, at, end, value, to):
    """Write digits as they are, those of decimals between quotes. Floats get a fraction if they have none."""
    if kind & DECIMAL:
        value[to] = 34
        to += 1
    first = at
    if at < end and data[at] == 45:
        at += 1
    stop = digits_end(data, at, end)
    if stop == at:
        return _BAD
    at = stop
    is_whole = True
    if not kind & INTEGER and at < end and data[at] == 46:
        stop = digits_end(data, at + 1, end)
        if stop == at + 1:
            return _BAD
        at = stop
        is_whole = False
    if kind & FLOAT and at < end and data[at] == 101:
        at += 1
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        stop = digits_end(data, at, end)
        if stop == at:
            return _BAD
        at = stop
        is_whole = False
    if at != end:
        return _BAD
    to = copy(data, first, end - first, value, to)
    if kind & DECIMAL:
        value[to] = 34
        to += 1
    elif kind & FLOAT and is_whole:
        value[to] = 46
        value[to + 1] = 48
        to += 2
    return to


def write_time(kind, data, at, end, value, to, texts):
    """Write a date, a time with six digits behind the point, or both in UTC."""
    value[to] = 34
    to += 1
    if kind & (DATE | TIMESTAMP):
        if end - at < 10 or digits_end(data, at, at + 4) != at + 4 or data[at + 4] != 45 or data[at + 7] != 45:
            return _BAD
        if digits_end(data, at + 5, at + 7) != at + 7 or digits_end(data, at + 8, at + 10) != at + 10:
            return _BAD
        to = copy(data, at, 10, value, to)
        at += 10
    if kind & TIMESTAMP:
        if at >= end or data[at] != 32:
            return _BAD
        value[to] = 84
        to += 1
        at += 1
    if kind & (TIME | TIMESTAMP):
        if end - at < 8 or digits_end(data, at, at + 2) != at + 2 or data[at + 2] != 58 or data[at + 5] != 58:
            return _BAD
        if digits_end(data, at + 3, at + 5) != at + 5 or digits_end(data, at + 6, at + 8) != at + 8:
            return _BAD
        if kind & TIME and (data[at] > 50 or (data[at] == 50 and data[at + 1] > 51)):
            return _BAD
        to = copy(data, at, 8, value, to)
        at += 8
        value[to] = 46
        to += 1
        digits = 0
        if at < end and data[at] == 46:
            stop = digits_end(data, at + 1, end)
            digits = stop - at - 1
            if digits < 1 or digits > 6:
                return _BAD
            to = copy(data, at + 1, digits, value, to)
            at = stop
        to = copy(texts, ZEROS_AT, 6 - digits, value, to)
    if kind & TIMESTAMP:
        if end - at == 3 and data[at] == 43 and data[at + 1] == 48 and data[at + 2] == 48:
            at = end
        value[to] = 90
        to += 1
    if at != end:
        return _BAD
    value[to] = 34
    return to + 1


def write_json(data, at, end, value, to):
    """Write JSON without white space between its parts. PostgreSQL has checked that it is JSON."""
    if at == end:
        return _BAD
    nested = 0
    is_string = False
    while at < end:
        byte = data[at]
        if byte >= 128:
            size = character_size(data, at, end)
            if size == 0 or not is_string:
                return _BAD
            to = copy(data, at, size, value, to)
            at += size
            continue
        if is_string:
            if byte < 32:
                return _BAD
            if byte == 92:
                # Of two escapes that are a surrogate pair one may be missing.
                if end - at < 2 or data[at + 1] == 117 or data[at + 1] >= 128:
                    return _BAD
                value[to] = byte
                to += 1
                at += 1
                byte = data[at]
            elif byte == 34:
                is_string = False
        elif byte <= 32:
            if byte != 32 and byte != 10 and byte != 9 and byte != 13:
                return _BAD
            at += 1
            continue
        elif byte == 34:
            is_string = True
        elif byte == 91 or byte == 123:
            nested += 1
            if nested > _MAX_NESTED:
                return _BAD
        elif byte == 92:
            return _BAD
        value[to] = byte
        to += 1
        at += 1
    return _BAD if is_string else to


def write_base64(data, at, end, value, to, texts):
    """Write the Base64 of hexadecimal digits behind `\\x`."""
    if end - at < 2 or data[at] != 92 or data[at + 1] != 120 or (end - at) & 1:
        return _BAD
    at += 2
    value[to] = 34
    to += 1
    bits = 0
    waiting = 0
    size = 0
    while at < end:
        digit = data[at] - 48
        if digit > 9:
            digit -= 39
            if digit < 10:
                return _BAD
        if digit < 0 or digit > 15:
            return _BAD
        bits = (bits << 4 | digit) & 0xFFFF
        waiting += 4
        if waiting >= 6:
            waiting -= 6
            value[to] = texts[BASE64_AT + ((bits >> waiting) & 63)]
            to += 1
            size += 1
        at += 1
    if waiting:
        value[to] = texts[BASE64_AT + ((bits << (6 - waiting)) & 63)]
        to += 1
        size += 1
    to = copy(texts, PADDING_AT, (4 - (size & 3)) & 3, value, to)
    value[to] = 34
    return to + 1


def character_size(data, at, end):
    """Return how many bytes the character has that begins here and is not ASCII; 0 if it is not UTF-8."""
    first = data[at]
    if first < 0xC2 or first > 0xF4:
        return 0
    more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    if more >= end - at:
        return 0
    point = first & (0x3F >> more)
    for place in range(1, more + 1):
        byte = data[at + place]
        if byte & 0xC0 != 0x80:
            return 0
        point = point << 6 | byte & 0x3F
    # Overlong encodings, surrogates, and numbers beyond the last character are not UTF-8.
    if point < 1 << (5 * more + 1) or 0xD800 <= point < 0xE000 or point > 0x10FFFF:
        return 0
    return more + 1


def digits_end(data, at, end):
    """Return where the digits end that begin here."""
    while at < end and data[at] >= 48 and data[at] <= 57:
        at += 1
    return at


def copy(source, at, size, out, to):
    """Copy bytes. Return where they end."""
    for place in range(size):
        out[to + place] = source[at + place]
    return to + size


def varint_size(number):
    rest = ((number << 1) ^ (number >> 63)) >> 7 & 0x01FFFFFFFFFFFFFF
    size = 1
    while rest:
        size += 1
        rest >>= 7
    return size


def write_varint(out, to, number):
    """Write a zigzag varint. Return where it ends."""
    rest = (number << 1) ^ (number >> 63)
    more = rest >> 7 & 0x01FFFFFFFFFFFFFF
    while more:
        out[to] = rest & 0x7F | 0x80
        to += 1
        rest = more
        more = rest >> 7
    out[to] = rest & 0x7F
    return to + 1


COMPILED = (
    copy,
    digits_end,
    character_size,
    varint_size,
    write_varint,
    write_base64,
    write_json,
    write_time,
    write_number,
    write_text,
    write_cell,
    read_line,
    read_row,
    read_change,
)
"""The functions that the loop calls, each behind those that it calls itself."""
