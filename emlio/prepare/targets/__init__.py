"""The targets of a preparation: shards in the forms that are written."""
