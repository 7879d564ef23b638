"""The tests; `naive` holds the slow twins, `cases` the kernels and points they run on."""
