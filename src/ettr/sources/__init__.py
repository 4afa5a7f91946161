"""Log formats, one file each: raw bytes in, rows of the documented tables out."""
