"""Servers that are measured side by side, each as a process of its own on a folder of its own."""
