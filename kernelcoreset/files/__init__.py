"""Files on any file system: what a path means, and writes that a crash cannot leave half done."""
