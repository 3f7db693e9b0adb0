"""What people and machines see of an audit: tables, files, pages and figures."""
