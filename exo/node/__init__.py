"""What this machine is: its memory, processors, links and engines, and how it is doing."""
