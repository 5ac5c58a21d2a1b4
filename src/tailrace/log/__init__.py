"""The log on disk: frames, segments, index, recovery, cleaner, fsck."""
