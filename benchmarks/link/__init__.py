"""A wide-area link on one machine: two network namespaces, a real TCP path between them, a set round trip."""
