"""One reader per kind of file or folder that users bring; nothing that lies in them is executed.

What is missing, broken, too large or hostile becomes a `FileFormatError` of one line; a package that is not installed a
`MissingPackageError`, which says how to install it.
"""
