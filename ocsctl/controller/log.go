package controller

import "fmt"

// log logs that a plane went out of service or came back, or that an operator changed it.
func (c *Core) log(e Event) {
	plane := fmt.Sprint(e.Plane)
	if e.Plane >= 0 && c.cfg.Planes[e.Plane].Name != "" {
		plane = c.cfg.Planes[e.Plane].Name
	}
	log := c.cfg.Log.With("plane", plane, "epoch", e.Epoch)
	switch {
	case e.Kind == Failed:
		log.Warn("plane is out of service", "reason", e.Err)
	case e.Kind == Restored:
		log.Info("plane has no fault any more")
	case e.To != nil:
		log.Info("plane was set", "by", e.Who, "disabled", e.Err)
	case e.Err != "":
		log.Warn("plane was disabled", "reason", e.Err)
	default:
		log.Info("plane was enabled", "by", e.Who)
	}
}
