"""Whether the records inside a batch are what its head says: all of them there, each whole, and nothing else."""

from tailrace.model.commit import Buffer
from tailrace.model.errors import CorruptBatchError, InvalidRecordsError
from tailrace.wire.batch import CODEC_MASK, HEADER_BYTES, BatchHeader
from tailrace.wire.codecs import decompress
from tailrace.wire.record_scan import Fault, Scan
from tailrace.wire.records import LEAST_RECORD_BYTES

_FAULTS = {
    Fault.LENGTH: "says a length that its batch has no room for",
    Fault.NUMBER: "has a number that is cut off or has too many bits",
    Fault.TIMESTAMP: "has a timestamp of more than 64 bits",
    Fault.OFFSET: "says that it is another one; offsets count from 0 without a gap",
    Fault.FIELD: "has a key or value of a length that it has no room for",
    Fault.HEADERS: "has more or longer headers than it has room for, or one without a name",
    Fault.HEADER_NAME: "has a header whose name is not UTF-8",
    Fault.LEFT_OVER: "has bytes behind its headers",
}


def check_records(batch: Buffer, header: BatchHeader, most_bytes: int, scan: Scan) -> int:
    """Return the newest timestamp of the records. What is compressed may have so many bytes before."""
    data, start = batch, HEADER_BYTES
    codec = header.attributes & CODEC_MASK
    if codec:
        try:
            data, start = decompress(codec, memoryview(batch)[HEADER_BYTES:], most_bytes), 0
        except CorruptBatchError as error:
            raise InvalidRecordsError(str(error)) from error
    size = len(data) - start
    if header.records * LEAST_RECORD_BYTES > size:
        raise InvalidRecordsError(f"the batch counts {header.records} records in {size} bytes, too few to hold them")
    fault, record, max_timestamp = scan(data, start, header.records, header.base_timestamp)
    if fault == Fault.TRAILING:
        raise InvalidRecordsError(f"the batch has bytes behind the last of its {header.records} records")
    if fault:
        raise InvalidRecordsError(f"record {record} of the batch {_FAULTS[Fault(fault)]}")
    return max_timestamp
