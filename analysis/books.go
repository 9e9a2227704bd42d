package analysis

import "time"

// ReadingInterval is how often the devices' used memory is read while a job runs.
const ReadingInterval = 100 * time.Millisecond
