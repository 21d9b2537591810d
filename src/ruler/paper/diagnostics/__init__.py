"""The four diagnostic studies of section 5.5: conditions, findings, controls, and their part of the page."""
