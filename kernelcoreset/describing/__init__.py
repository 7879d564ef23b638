"""From labelled rows to words: how large clusters are, what sets them apart, and which rows are typical."""
