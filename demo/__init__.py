"""The main job of Tailrace, shown on a real server: `make demo`."""
