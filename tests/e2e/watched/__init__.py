"""A healthy job under watch for hours: the alarms that its tools raise, and the processor time of watching."""
