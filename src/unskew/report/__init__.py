"""Pictures of results. The only room that imports matplotlib."""
