"""The log as a whole on its way elsewhere, or made smaller: export, import, compact."""
