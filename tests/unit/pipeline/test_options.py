"""Options of the data source: read as Spark's Kafka source reads them, and rejected by name where that is not possible."""

import pytest

from tailrace.pipeline.errors import OptionError
from tailrace.pipeline.options import sink_options, source_options


def test_names_of_options_may_be_written_in_any_case() -> None:
    options = source_options(
        {"SUBSCRIBE": "a, b ,c", "maxoffsetspertrigger": "100", "IncludeHeaders": "TRUE", "failondataloss": "false"},
        streaming=True,
    )
    assert options.topics == ("a", "b", "c")
    assert (options.max_offsets_per_trigger, options.include_headers, options.fail_on_data_loss) == (100, True, False)


def test_streams_begin_at_the_end_and_batches_at_the_beginning() -> None:
    assert source_options({"subscribe": "a"}, streaming=True).starting == "latest"
    assert source_options({"subscribe": "a"}, streaming=False).starting == "earliest"


def test_offsets_can_be_given_for_each_partition() -> None:
    options = source_options({"subscribe": "a", "startingOffsets": '{"a": {"0": 23, "1": -2}}'}, streaming=True)
    assert options.starting == {"a": {"0": 23, "1": -2}}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "subscribe"),
        ({"subscribe": "a", "pattern": "b.>"}, "subscribe"),
        ({"subscribe": " , "}, "at least one topic"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger is 'many'"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "failOnDataLoss is 'perhaps'"),
        ({"subscribe": "a", "startingOffsets": "soon"}, "startingOffsets is 'soon'"),
        ({"subscribe": "a", "startingOffsets": "earliest", "startingTimestamp": "1"}, "both given"),
        ({"subscribe": "a", "endingOffsets": "latest"}, "no end"),
    ],
)
def test_wrong_options_of_a_stream_are_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        source_options(given, streaming=True)


@pytest.mark.parametrize("given", [{"startingOffsets": "latest"}, {"endingOffsets": "earliest"}])
def test_a_batch_that_could_hold_nothing_is_rejected(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="is empty"):
        source_options({"subscribe": "a", **given}, streaming=False)


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscibe", "subscribe"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribePattern", "pattern"),
        ("kafka.bootstrap.servers", "server"),
        ("startingOffsetsByTimestamp", "startingTimestamp"),
    ],
)
def test_an_option_that_would_be_ignored_is_answered_with_the_one_that_was_meant(misspelt: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"there is no option {misspelt.lower()!r}; did you mean {meant!r}\\?"):
        source_options({"subscribe": "a", misspelt: "x"}, streaming=True)


def test_options_of_spark_itself_are_let_pass() -> None:
    source_options({"subscribe": "a", "path": "/x", "checkpointLocation": "/y", "schema": "z"}, streaming=True)
    sink_options({"topic": "t", "checkpointLocation": "/y", "queryName": "q", "path": "/x"})
    with pytest.raises(OptionError, match="did you mean 'topic'"):
        sink_options({"topics": "t"})


def test_an_unknown_compression_is_rejected() -> None:
    with pytest.raises(OptionError, match="compression is 'zip'"):
        sink_options({"topic": "t", "compression": "zip"})
