"""Reserve names, write and validate files, publish them in one transaction."""
