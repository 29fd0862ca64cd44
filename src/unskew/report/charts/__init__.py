"""Charts as inline SVG, drawn here: no picture library, nothing fetched, colours left to the page's style."""
