"""A store: coresets by partition key in a folder, with one coreset of all of them."""
