"""The master: decides, records, keeps the log. One leads; the others follow and could."""
