"""Kafka's command line for quotas."""

from tests.compat.tools.commands import CommandLine
from tests.compat.tools.programs import COMMANDS, tool


@tool(COMMANDS, "`kafka-configs`: quotas of users and clients, own and default, set, shown and deleted", short=True)
def test_quotas_are_set_shown_and_deleted(kafka: CommandLine) -> None:
    def alter(*arguments: str) -> None:
        kafka.lines("kafka-configs", "--alter", *arguments)

    def shown(*arguments: str) -> list[str]:
        return [line for line in kafka.lines("kafka-configs", "--describe", *arguments) if line.startswith("Quota configs")]

    alice = ("--entity-type", "users", "--entity-name", "alice")
    app_of_others = ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "app")
    alter(*alice, "--add-config", "producer_byte_rate=1000000,consumer_byte_rate=2000000")
    alter(*app_of_others, "--add-config", "producer_byte_rate=5")
    alter("--entity-type", "clients", "--entity-default", "--add-config", "consumer_byte_rate=7")
    assert shown("--entity-type", "users") == [
        "Quota configs for user-principal 'alice' are consumer_byte_rate=2000000.0, producer_byte_rate=1000000.0"
    ]
    assert shown(*app_of_others) == ["Quota configs for the default user-principal, client-id 'app' are producer_byte_rate=5.0"]
    assert shown("--entity-type", "clients") == ["Quota configs for the default client-id are consumer_byte_rate=7.0"]
    alter(*alice, "--delete-config", "producer_byte_rate")
    assert shown(*alice) == ["Quota configs for user-principal 'alice' are consumer_byte_rate=2000000.0"]
    alter(*alice, "--delete-config", "consumer_byte_rate")
    assert shown(*alice) == []
    refused = kafka.refused(
        "kafka-configs", "--alter", "--entity-type", "clients", "--entity-default", "--add-config", "request_percentage=50"
    )
    assert "there is no quota 'request_percentage'; set requests" in refused
    refused = kafka.refused("kafka-configs", "--alter", *alice, "--add-config", "producer_byte_rate=0")
    assert "greater than 0" in refused
