// Events from Cilium's log; the lines themselves go to standard error as Cilium writes them.

package main

import (
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/cilium/cilium/pkg/logging"
	"nodeipam.io/tests/agent/rig"
)

func forwardLogs(events *rig.Events) {
	logging.DefaultLogger.AddHook(eventHook{events: events})
}

// eventHook is a hook of the logger that knows events only. It is called before a fatal line ends the process.
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
