"""How messages name a place."""

from chaos.history import Place


def name(place: Place) -> str:
    offset = f"offset {place.offset}" if place.offset >= 0 else "an offset that nobody told"
    return f"{place.topic}/{place.partition} {offset}"
