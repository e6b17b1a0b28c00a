"""What connects the processes of a job: launchers, the transport between workers, channels between tasks."""
