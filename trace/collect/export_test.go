package collect

// Kill leaves things as SIGKILL of the collector does: temporary files stay, the lock goes.
func (c *Collector) Kill() {
	for _, p := range c.processes {
		p.from.Close()
	}
	c.close()
}

// PollLive is Poll for a spool that the calling process writes itself, whose lock it
// cannot see.
func (c *Collector) PollLive() (bool, error) {
	c.mu.Lock()
	for _, p := range c.processes {
		p.silent = 0
	}
	c.mu.Unlock()
	return c.Poll()
}
