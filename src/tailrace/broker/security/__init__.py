"""Who may do what: users, roles and tokens, the grants that they have, and the checks that rules make."""
