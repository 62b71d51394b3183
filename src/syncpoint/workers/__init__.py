"""Processes that do one job for somebody who must outlive it: started, listened to, ended whole."""
