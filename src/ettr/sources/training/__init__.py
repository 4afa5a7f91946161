"""What training loops and the trackers of metrics wrote: progress without a change to the loop."""
