"""Where difficulties are estimated: in this process, or in one beside it."""
