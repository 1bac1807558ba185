"""Graders: functions that score a response from 0 to 1 by the official rule of its benchmark."""
