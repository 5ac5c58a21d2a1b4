"""What is known not to work today, with the reason that the grid shows. A fix makes the test fail until its line is gone."""

KNOWN_FAILURES: dict[tuple[str, str], str] = {
    ("franz-go", "consumer-protocol-static-members"): "It does not name itself when it leaves, which Apache Kafka refuses too"
    " (`InstanceId can't be null`), so its place is free only when its session ends.",
}
"""By client and scenario."""
