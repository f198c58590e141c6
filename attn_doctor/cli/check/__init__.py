"""`attn-doctor check`, its formats, its policy, and what it says of configurations and backends."""
