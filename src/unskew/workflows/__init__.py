"""The work behind the command line: files in, results out. Nothing here prints."""
