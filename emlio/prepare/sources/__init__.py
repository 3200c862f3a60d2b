"""The sources of a conversion: data in other forms, item by item."""
