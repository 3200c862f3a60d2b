"""Objects in a bucket, or files behind a web server: addresses, requests, retries, a local cache."""
