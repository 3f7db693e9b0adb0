"""What an audit writes: the table, JSON and Markdown, all from the same rows."""
