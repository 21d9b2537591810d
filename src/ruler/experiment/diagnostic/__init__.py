"""The diagnostic studies beyond the ten tables: large tables, images, faces and clinical text."""
