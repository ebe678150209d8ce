package controller

// log logs that a plane went out of service or came back, that an operator changed it, that a port is out of
// service, and that the light of a port fades.
func (c *Core) log(e Event) {
	log := c.cfg.Log.With("plane", c.cfg.Planes[e.Plane].Name, "epoch", e.Epoch)
	switch {
	case e.Kind == Failed:
		log.Warn("plane is out of service", "reason", e.Err)
	case e.Kind == Restored:
		log.Info("plane has no fault any more")
	case e.Kind == Remapped:
		log.Info("port was moved", "port", e.Port, "from", e.Moved.From, "to", e.Moved.To, "by", e.Who)
	case e.Kind == Dimmed:
		log.Warn("light of a port fades", "port", e.Port, "reason", e.Err)
	case e.Kind == Excluded:
		log.Warn("port is out of service", "port", e.Port, "reason", e.Err)
	case e.Kind == Included:
		log.Info("port is back in service", "port", e.Port)
	case e.Kind == Brightened:
		log.Info("light of a port has come back", "port", e.Port)
	case e.To != nil:
		log.Info("plane was set", "by", e.Who, "disabled", e.Err)
	case e.Err != "":
		log.Warn("plane was disabled", "reason", e.Err)
	default:
		log.Info("plane was enabled", "by", e.Who)
	}
}
