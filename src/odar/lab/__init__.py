"""For researchers: recordings, replay, calibration, benchmarks, graders, statistics and reports."""
