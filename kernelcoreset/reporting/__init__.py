"""From the record of a run to a page that people read and forward. Plain data in, text out."""
