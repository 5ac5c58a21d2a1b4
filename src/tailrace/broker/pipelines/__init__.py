"""What Spark writes: pipelines and writers, each batch once, with marks that say how far they have come."""
