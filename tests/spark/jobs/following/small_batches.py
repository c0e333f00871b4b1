"""`headwater spark` with batches of a thousand messages: a job that follows has several."""

import sys

from headwater.spark.cli import spark
from headwater.spark.jobs.following import follower

if __name__ == "__main__":
    follower.BATCH_ROWS = "1000"
    spark(sys.argv[1:])
