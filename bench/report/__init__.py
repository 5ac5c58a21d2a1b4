"""The pages that show results: Markdown for reading anywhere, HTML with charts."""
