"""The demo's judgement."""
