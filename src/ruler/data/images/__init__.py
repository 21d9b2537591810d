"""Images and faces: named sets, folders and files of your own."""
