"""What Spark's executors are like: where they run, with which Python, and what they reach."""
