"""The event log of one master, in one SQLite file. The only part that knows SQLAlchemy."""
