"""Pictures and pages of results. The only room that imports matplotlib and jinja2."""
