"""One small protocol between orchestration and measurement, and Ray behind it."""
