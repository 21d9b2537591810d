"""One reader per kind of file or folder that users bring; nothing that lies in them is executed."""
