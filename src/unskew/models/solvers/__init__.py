"""Ways to the optimum of one objective. Each is a start, a step, and what the state means; a run of them can stop and go on."""
