"""A folder with a TOML file that names models and records, or embeddings -> what an audit takes."""
