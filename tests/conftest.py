"""Settings shared by all tests."""

from hypothesis import settings

settings.register_profile("unskew", deadline=None, print_blob=True)
settings.load_profile("unskew")
