"""The figures of SPEC 7.5: each a function that draws and one that lists the numbers behind it."""
