"""PTX text as values: parsing, the table of instruction forms, control flow; nothing here executes."""
