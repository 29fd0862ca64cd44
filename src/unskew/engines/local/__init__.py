"""The whole job on data frames that are read into the memory of this process."""
