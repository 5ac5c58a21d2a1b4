"""The SDK for threads is what the tool generates from the one for asyncio."""

from tools.generate_sync import stale_files, to_sync


def test_the_generated_files_are_up_to_date() -> None:
    assert stale_files() == []


def test_async_words_go_and_names_lose_their_prefix() -> None:
    source = "async def f(self) -> AsyncIterator[int]:\n    async with AsyncLock():\n        await self.__aenter__()\n"
    assert to_sync(source) == "def f(self) -> Iterator[int]:\n    with Lock():\n        self.__enter__()\n"
