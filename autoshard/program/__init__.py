"""Programs: a graph of ops on tensors, with a sharding rule on every op and no front end's objects."""
