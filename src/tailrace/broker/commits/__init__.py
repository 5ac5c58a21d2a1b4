"""How anything is changed: a proposal decides on the latest view, a draft collects it, one committer makes it durable."""
