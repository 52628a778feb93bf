"""Networks in files: the format of the contest that such networks were published for."""
