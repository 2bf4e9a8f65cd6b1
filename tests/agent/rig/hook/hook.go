// Package hook makes events of Cilium's log, for the releases whose logger is logrus. The lines themselves go to standard
// error as Cilium writes them.
package hook

import (
	"fmt"

	"github.com/sirupsen/logrus"

	"nodeipam.io/tests/agent/rig"
)

// Into returns a hook of the logger that knows events only. It is called before a fatal line ends the process.
func Into(events *rig.Events) logrus.Hook {
	return eventHook{events: events}
}

type eventHook struct {
	events *rig.Events
}

func (eventHook) Levels() []logrus.Level {
	return logrus.AllLevels
}

func (h eventHook) Fire(line *logrus.Entry) error {
	details := map[string]string{}
	for key, value := range line.Data {
		details[key] = fmt.Sprint(value)
	}
	if line.Level <= logrus.FatalLevel {
		h.events.Fatal(line.Message, details)
	} else {
		h.events.Log(line.Message, details)
	}
	return nil
}
