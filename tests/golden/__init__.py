"""Files and values made by earlier versions, which this one must read and repeat."""
