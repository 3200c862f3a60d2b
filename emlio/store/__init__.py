"""The files of a dataset: folders, trees, tables of files, reading and writing them safely."""
