"""One file per wire protocol; all of them answer a `Request` with a `Reply`."""
