"""The engine of one host: a launcher that outlives the service, and a runner for each job."""
