"""Which model servers there are, what they serve and how busy they are: files, discovery and scrapes."""
