"""Files of COPY: CSV, Parquet and Arrow, read and written in chunks. Nothing here talks to a server."""
