// Obeying the commands that come on standard input.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"nodeipam.io/tests/controlplane/oracle"
)

// readLines sends the lines of a stream until it ends.
func readLines(from io.Reader, lines chan<- []byte) {
	reader := bufio.NewReader(from)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			lines <- line
		}
		if err != nil {
			return
		}
	}
}

// obey carries out commands until the context ends. Commands for one server are carried out in their order, and so
// are allow, limit, holds and gc; a wait for a server or for the oracle holds up nothing else.
func (s *supervisor) obey(ctx context.Context, commands <-chan []byte) {
	// A test has one or two of these in flight.
	queues := map[string]chan command{"etcd": make(chan command, 64), "apiserver": make(chan command, 64)}
	for target, queue := range queues {
		go func() {
			for c := range queue {
				s.answer(c, answer{}, s.control(ctx, target, c.Cmd))
			}
		}()
	}
	for {
		var line []byte
		select {
		case <-ctx.Done():
			return
		case line = <-commands:
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			s.answer(c, answer{}, fmt.Errorf("not a command: %w: %s", err, strings.TrimSpace(string(line))))
			continue
		}
		switch c.Cmd {
		case "stop", "kill", "start":
			queue, known := queues[c.Target]
			if !known {
				s.answer(c, answer{}, fmt.Errorf("no target is called %q", c.Target))
				continue
			}
			select {
			case queue <- c:
			default:
				s.answer(c, answer{}, fmt.Errorf("too many commands for %s are waiting", c.Target))
			}
		case "oracle":
			go func() {
				report, revision, err := s.observer.report(ctx)
				s.answer(c, answer{Revision: revision, Report: report}, err)
			}()
		case "compact":
			go func() {
				revision, err := s.observer.compact(ctx, c.BehindOracle)
				s.answer(c, answer{Revision: revision}, err)
			}()
		case "space":
			if c.Full == nil {
				s.answer(c, answer{}, errors.New("full is missing"))
				continue
			}
			go func() {
				s.answer(c, answer{}, s.observer.space(ctx, *c.Full))
			}()
		case "backup", "restore":
			go func() {
				var err error
				if c.Cmd == "restore" {
					err = s.restore(ctx, c.Folder)
				} else {
					err = s.backup(ctx)
				}
				if err == nil && !c.OnlyEtcd {
					err = s.control(ctx, "apiserver", "start")
				}
				s.answer(c, answer{}, err)
			}()
		case "renew":
			go func() {
				err := s.renew(ctx, options{families: families{c.IPv4, c.IPv6}, ipam: c.IPAM, ciliumConfig: c.CiliumConfig})
				if err == nil {
					s.collector.restart(ctx)
				}
				s.answer(c, answer{}, err)
			}()
		case "allow":
			allowance, err := oracle.NewAllowance(c.Rule, c.Node, c.CIDR)
			if err == nil {
				s.judge.Allow(allowance)
			}
			s.answer(c, answer{}, err)
		case "limit":
			limit, err := time.ParseDuration(c.Releasing)
			if err == nil {
				s.judge.LimitReleasing(limit)
			}
			s.answer(c, answer{}, err)
		case "answers":
			s.judge.JudgeAtAnswers()
			s.answer(c, answer{}, nil)
		case "holds":
			findings, err := s.judge.Hold(c.Node, c.Add, c.Remove)
			s.announce(findings)
			s.answer(c, answer{}, err)
		case "gc":
			if c.Enabled == nil {
				s.answer(c, answer{}, errors.New("enabled is missing"))
				continue
			}
			s.collector.setEnabled(*c.Enabled)
			s.answer(c, answer{}, nil)
		default:
			s.answer(c, answer{}, fmt.Errorf("no command is called %q", c.Cmd))
		}
	}
}

// control carries out stop, kill or start.
func (s *supervisor) control(ctx context.Context, target, cmd string) error {
	server := s.etcd
	if target == "apiserver" {
		server = s.apiserver
	}
	switch cmd {
	case "stop":
		return server.stop()
	case "kill":
		return server.kill()
	default:
		if err := server.start(ctx); err != nil {
			return err
		}
		if target == "apiserver" {
			s.collector.restart(ctx)
		}
		return nil
	}
}

// answer answers a command; a success without id is not answered.
func (s *supervisor) answer(c command, a answer, err error) {
	if err != nil {
		s.out.say(answer{ID: c.ID, Error: err.Error()})
		return
	}
	if c.ID == nil {
		return
	}
	a.ID, a.OK = c.ID, true
	s.out.say(a)
}
