"""Where the time goes on the hottest paths, sampled with py-spy while clients keep the server busy."""
