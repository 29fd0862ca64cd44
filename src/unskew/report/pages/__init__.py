"""What a page says of each kind of result."""
